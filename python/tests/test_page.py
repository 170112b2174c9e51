"""The example of the page for programmers, as it is there."""

import pathlib


def test_the_example_runs(serve):
    page = pathlib.Path(__file__).parents[2] / "docs" / "programming.md"
    example = page.read_text().split("```python\n")[1].split("```")[0]
    assert "127.0.0.1:4420" in example
    names: dict[str, object] = {}
    exec(example.replace("127.0.0.1:4420", serve.address), names)
    assert names["data"] == b"\x07" * 4096
    assert names["blocks"] == [b"\x07" * 4096] * 2 + [bytes(4096)] * 126
