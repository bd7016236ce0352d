# SPDX-License-Identifier: Apache-2.0
"""The table of the 160 cases is whole and says what the tests are."""
import table


def test_every_case_has_exactly_one_test():
    numbers = sorted(number for number, *_ in table.cases())
    assert numbers == list(range(1, 161))
    assert all(sentence.endswith(".") and len(sentence) > 10 for _, sentence, *_ in table.cases())


def test_the_table_in_the_readme_is_that_of_the_tests():
    readme = (table.FOLDER / "README.md").read_text()
    assert readme.partition(
        table.FENCE)[2].strip() == table.table().strip(), "run tests/contract/table.py --write"
