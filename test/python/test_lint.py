"""The structure checks must themselves be able to fail."""

import check_layers


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_includes_point_down(tmp_path):
    write(tmp_path, "src/support/error.h", "")
    write(tmp_path, "src/ir/graph.h", '#include "support/error.h"\n#include <vector>\n')
    assert check_layers.layer_errors(tmp_path) == []
    write(tmp_path, "src/support/bad.h", '#include "ir/graph.h"\n#include "gone.h"\n')
    assert check_layers.layer_errors(tmp_path) == [
        'src/support/bad.h:1: support must not include "ir/graph.h"',
        'src/support/bad.h:2: "gone.h" is not a file under src or include',
    ]


def test_include_cycles(tmp_path):
    write(tmp_path, "src/ir/a.h", '#include "ir/b.h"\n')
    write(tmp_path, "src/ir/b.h", '#include "ir/a.h"\n')
    assert check_layers.layer_errors(tmp_path) == ["include cycle: ir/a.h -> ir/b.h -> ir/a.h"]


def test_sizes(tmp_path):
    write(tmp_path, "src/ir/a.cc", "\n" * 600)
    write(tmp_path, "python/autosp/a.py", "\n" * 119)
    assert check_layers.size_errors(tmp_path) == []
    write(tmp_path, "python/autosp/b.py", "\n")
    write(tmp_path, "src/ir/b.cc", "\n" * 601)
    assert check_layers.size_errors(tmp_path) == ["src/ir/b.cc: 601 lines, more than 600"]
    write(tmp_path, "python/autosp/c.py", "\n" * 200)
    assert "1/5" in check_layers.size_errors(tmp_path)[1]
