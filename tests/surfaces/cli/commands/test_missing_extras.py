"""`anabranch check` names the extra that a definition would need on this machine."""

from __future__ import annotations

import pytest

from anabranch.work.kinds.buckets import places

from ..support import HEAD, Here

UPLOADS = f"""{HEAD}metadata: {{name: uploads}}
workflow:
  - step: up
    tool: {{kind: gcs, data: 1, destination: "gs://store/a"}}
"""


def test_check_names_the_extra_and_is_no_failure(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("uploads.yaml", UPLOADS)
    monkeypatch.setattr(places, "PACKAGE", "no_such_package_here")
    checked = here.run("check", "uploads.yaml")
    assert checked.code == 0
    assert "missing-extra: warning: the task of step 'up'" in checked.out
    assert "pip install 'anabranch[buckets]'" in checked.out
    monkeypatch.setattr(places, "PACKAGE", "msgspec")
    assert "missing-extra" not in here.run("check", "uploads.yaml").out
