/* SPDX-License-Identifier: Apache-2.0 */

/* The names of models: the Hugging Face id, then Ollama's names. A bare name is Ollama's tag
 * `latest`. Tags move: the operator adds names that are missing or have moved with --alias. */

#include "protocol/names.h"

const struct known_name names_table[] = {
    {"meta-llama/Llama-3.2-1B-Instruct", {"llama3.2:1b"}},
    {"meta-llama/Llama-3.2-3B-Instruct", {"llama3.2:3b", "llama3.2"}},
    {"meta-llama/Llama-3.1-8B-Instruct", {"llama3.1:8b", "llama3.1"}},
    {"meta-llama/Llama-3.1-70B-Instruct", {"llama3.1:70b"}},
    {"meta-llama/Llama-3.3-70B-Instruct", {"llama3.3:70b", "llama3.3"}},
    {"Qwen/Qwen3-0.6B", {"qwen3:0.6b"}},
    {"Qwen/Qwen3-1.7B", {"qwen3:1.7b"}},
    {"Qwen/Qwen3-4B", {"qwen3:4b"}},
    {"Qwen/Qwen3-4B-Instruct-2507", {"qwen3:4b-instruct"}},
    {"Qwen/Qwen3-4B-Thinking-2507", {"qwen3:4b-thinking"}},
    {"Qwen/Qwen3-8B", {"qwen3:8b", "qwen3"}},
    {"Qwen/Qwen3-14B", {"qwen3:14b"}},
    {"Qwen/Qwen3-32B", {"qwen3:32b"}},
    {"Qwen/Qwen3-30B-A3B", {"qwen3:30b"}},
    {"Qwen/Qwen2.5-0.5B-Instruct", {"qwen2.5:0.5b"}},
    {"Qwen/Qwen2.5-1.5B-Instruct", {"qwen2.5:1.5b"}},
    {"Qwen/Qwen2.5-3B-Instruct", {"qwen2.5:3b"}},
    {"Qwen/Qwen2.5-7B-Instruct", {"qwen2.5:7b", "qwen2.5"}},
    {"Qwen/Qwen2.5-14B-Instruct", {"qwen2.5:14b"}},
    {"Qwen/Qwen2.5-32B-Instruct", {"qwen2.5:32b"}},
    {"google/gemma-3-270m-it", {"gemma3:270m"}},
    {"google/gemma-3-1b-it", {"gemma3:1b"}},
    {"google/gemma-3-4b-it", {"gemma3:4b", "gemma3"}},
    {"google/gemma-3-12b-it", {"gemma3:12b"}},
    {"google/gemma-3-27b-it", {"gemma3:27b"}},
    {"mistralai/Mistral-7B-Instruct-v0.3", {"mistral:7b", "mistral"}},
    {"mistralai/Mistral-Nemo-Instruct-2407", {"mistral-nemo:12b", "mistral-nemo"}},
    {"HuggingFaceTB/SmolLM2-135M-Instruct", {"smollm2:135m"}},
    {"HuggingFaceTB/SmolLM2-360M-Instruct", {"smollm2:360m"}},
    {"HuggingFaceTB/SmolLM2-1.7B-Instruct", {"smollm2:1.7b"}},
    {"microsoft/Phi-3.5-mini-instruct", {"phi3.5:3.8b", "phi3.5"}},
    {"microsoft/phi-4", {"phi4:14b", "phi4"}},
    {"sentence-transformers/all-MiniLM-L6-v2", {"all-minilm:22m", "all-minilm"}},
    {"sentence-transformers/all-MiniLM-L12-v2", {"all-minilm:33m"}},
    {"nomic-ai/nomic-embed-text-v1.5", {"nomic-embed-text:v1.5", "nomic-embed-text"}},
    {"mixedbread-ai/mxbai-embed-large-v1", {"mxbai-embed-large:335m", "mxbai-embed-large"}},
    {"BAAI/bge-m3", {"bge-m3:567m", "bge-m3"}},
    {"google/embeddinggemma-300m", {"embeddinggemma:300m", "embeddinggemma"}},
    {"Qwen/Qwen3-Embedding-0.6B", {"qwen3-embedding:0.6b"}},
    {"Qwen/Qwen3-Embedding-4B", {"qwen3-embedding:4b"}},
    {"Qwen/Qwen3-Embedding-8B", {"qwen3-embedding:8b", "qwen3-embedding"}},
};
const size_t names_table_count = sizeof names_table / sizeof *names_table;
