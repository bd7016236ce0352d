/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

static bool refuse_lack(const struct dialect_call *call, const char *what, const char *param,
                        struct refusal *refusal) {
    return refuse(refusal, "unsupported_parameter", param, "\"%.*s\" does not support %s",
                  STR_ARGS(buf_str(&call->model)), what);
}

bool ollama_fits(const struct dialect_call *call, const struct worker_model *model,
                 struct refusal *refusal) {
    bool embeds_texts = call->endpoint == ENDPOINT_EMBEDDINGS;
    bool is_known = model->generates || model->embeds;
    if (is_known && embeds_texts && !model->embeds)
        return refuse_lack(call, "embeddings", "model", refusal);
    if (is_known && !embeds_texts && !model->generates)
        return refuse_lack(call, call->dialect == &ollama_chat ? "chat" : "generate", "model",
                           refusal);
    if (!model->about.knows_template || call->is_bare) return true;
    if (call->wants_tools && !model->about.takes_tools)
        return refuse_lack(call, "tools", "tools", refusal);
    if (call->wants_thought && !model->about.thinks)
        return refuse_lack(call, "thinking", "think", refusal);
    return true;
}
