"""Whatever bytes come in: the reader does not raise, and an edit stands where it says."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from script_reading import HEAD, submitted
from test_rewrite import check

from omnipilot_slurm.records import Arm, Editable, Launch, Reason, Submission
from omnipilot_slurm.script import directives, rewrite, serving, tres
from omnipilot_slurm.script.budget import never
from omnipilot_slurm.script.detected import detected

CASES = sorted(
    path.read_bytes()
    for path in (Path(__file__).parents[2] / "fixtures" / "scripts").glob("*/job.sh")
)
#: pieces that mean something to the reader
PIECES = st.sampled_from(
    "vllm|serve|M/x|-tp|2|--tensor-parallel-size=4|$TP|${TP:-2}|$(|)|((|))|{|}|[|]|[[|]]|'|\"|`|\\|"
    "\n|;|;;|&|&&||||||<<E\nE\n|<<'E'|<(|>|2>&1|$|#|!|=|+=|A|A=|A=(|\"${A[@]}\"|if|then|fi|for|in|"
    "do|done|while|case|esac|function|f()|f|bash|-c|eval|srun|--gres=gpu:2|-G|python|-m|-|\t|\u00fc|"
    "vllm.entrypoints.openai.api_server|--model|docker|run|vllm/vllm-openai|export|source|x.conf|"
    'exit|return|set|--|shift|\x00|\udcff|${|%%|:|$1|"$@"|sbatch|cat|EOF|LLM(|import|xargs|ssh'.split(
        "|"
    )
)
SHELL_TEXT = st.lists(PIECES, max_size=40).map(" ".join) | st.lists(PIECES, max_size=40).map(
    "".join
)


def launches_of(submission: Submission) -> tuple[Launch, ...]:
    """Read a submission in all ways that answers are made of, and check what is said of edits."""
    form = directives.submission_of(submission.script)[1]
    request = tres.request_of(submission, node_form=form)
    found = serving.find(submission, request)
    shown = detected(found, submission.script, request)
    if shown["edit"] is not None:
        start, end = shown["edit"]["byte_start"], shown["edit"]["byte_end"]
        assert submission.script[start:end] == shown["edit"]["old"].encode(
            "utf-8", "surrogateescape"
        )
        assert found.is_serving is True
    for launch in found.launches:
        place = launch.tp_place
        assert place is None or submission.script[place.start : place.end] == place.old
    return found.launches


def check_rewrites(submission: Submission, launch: Launch) -> None:
    """Check that each arm is refused, or reached by edits that change nothing else."""
    for n_gpus in (1, 8):
        arm = Arm(partition=None, gpu="x", gres_type="x", n_gpus=n_gpus, tensor_parallel=n_gpus)
        found = rewrite.rewrite(submission, launch, arm, expired=never)
        if not isinstance(found, Reason):
            check(submission, found, arm)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    launches_of(submitted(data))
    launches_of(submitted(HEAD.encode() + b"vllm serve M/x -tp 2\n" + data))


@settings(deadline=None)
@given(SHELL_TEXT)
def test_any_shell_like_text_is_read(text: str) -> None:
    body = text.encode("utf-8", "surrogateescape")
    for script in (body, HEAD.encode() + body, HEAD.encode() + b"vllm serve M/x -tp 2\n" + body):
        submission = submitted(script)
        found = launches_of(submission)
        if len(found) == 1 and found[0].editable is not Editable.NO:
            check_rewrites(submission, found[0])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A real script with parts taken out, doubled, exchanged or put in."""
    script = draw(st.sampled_from(CASES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(script)))
        end = min(start + draw(st.integers(0, 60)), len(script))
        new = draw(
            st.sampled_from([b"", script[start:end] * 2])
            | PIECES.map(lambda text: text.encode("utf-8", "surrogateescape"))
        )
        script = script[:start] + new + script[end:]
    return script


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_damaged_script_is_read_and_never_damaged_more(script: bytes) -> None:
    submission = submitted(script)
    found = launches_of(submission)
    if len(found) == 1 and found[0].editable is not Editable.NO:
        check_rewrites(submission, found[0])
