"""``outlast check``: what it finds in hooks, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlast.agent import Agent
from outlast.check import check_agents
from outlast.hazards import instead_of
from outlast.worker import load_agents

SOURCE = Path(__file__).with_name("hazardous_hooks.txt")
"""Not a .py file, since no linter could bear it."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Agent]:
    """The agents of the hazardous file, by name."""
    file = tmp_path_factory.mktemp("hooks") / "hazardous_hooks.py"
    file.write_text(SOURCE.read_text())
    return {agent.name: agent for agent in load_agents(file)}


def test_every_hazard_is_found_in_its_line_and_nothing_else_is(agents: dict[str, Agent]) -> None:
    wanted = {
        (number, match[1].strip())
        for number, line in enumerate(SOURCE.read_text().splitlines(), start=1)
        if (match := re.search(r"# FOUND (.*)", line))
    }
    assert len(wanted) > 45
    assert {(finding.line, finding.uses) for finding in check_agents([agents["reckless"]])} == wanted


def test_a_finding_names_the_hook_the_agent_the_way_to_it_and_what_to_use(agents: dict[str, Agent]) -> None:
    found = {finding.uses: str(finding) for finding in check_agents([agents["reckless"]])}
    assert re.fullmatch(
        r".*hazardous_hooks\.py:\d+: dt\.now\(\) in before_model of 'audit' -> _more -> helper, "
        r"agent 'reckless': use ctx\.now\(\)",
        found["dt.now()"],
    )
    assert found["uuid.uuid4()"].endswith("use ctx.uuid()")
    assert found["random.random()"].endswith("use ctx.random")
    assert found["httpx.get()"].endswith("do it in a @side_effect function")
    assert found["the order of the set TAGS"].endswith("use sorted(...)")
    assert "before_tool of 'human_in_the_loop'" in found["time.monotonic()"]


def test_the_hooks_that_outlast_provides_have_no_findings(agents: dict[str, Agent]) -> None:
    assert check_agents([agents["careful"]]) == []


HARMLESS = """
json.dumps builtins.len datetime.datetime.fromisoformat uuid.UUID os.path.join time.struct_time re.match asyncio.sleep
asyncio.gather hashlib.sha256 pathlib.Path
"""


def test_what_is_harmless_is_not_in_the_table() -> None:
    assert [name for name in HARMLESS.split() if instead_of(name)] == []
