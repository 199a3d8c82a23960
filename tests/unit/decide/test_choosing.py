"""Another place is taken where it is surely worth more; what is noise stays with the user."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_for_tests import Rates, ask, priced, script, site

from omnipilot_slurm.decide import arms, choosing, valuing
from omnipilot_slurm.decide.arms import Question, RatedArm
from omnipilot_slurm.decide.choosing import winner
from omnipilot_slurm.decide.engines import Engines
from omnipilot_slurm.decide.site import KnownModel, Site
from omnipilot_slurm.decide.usage import UsualLoad, UsualLoads
from omnipilot_slurm.decide.utility import UtilityTerms
from omnipilot_slurm.records import Verdict, Workload
from omnipilot_slurm.script import directives, serving, tres

if TYPE_CHECKING:
    import random

    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.site_settings import PolicySettings

LLAMA_8B = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
ON_H100 = {"partition": "h100", "time_limit_min": 480}
#: of one 8 h run: at 3 $/h an H100 costs 24 $, and 1000 tok/s are worth 57.6 $
EQUAL = {(gpu, n): 1000.0 for gpu in ("a100-40g", "a100-80g", "h100", "h200") for n in (1, 2, 4, 8)}


def with_rates(rates: dict[tuple[str, int], float], **more: Any) -> Site:
    """Return a site whose places deliver as much as is said, else 1000 tok/s, at 3 $/h a GPU."""
    where = replace(site(), predictor=Rates(EQUAL | rates, **more))
    return priced(where, dict.fromkeys(("a100-40g", "a100-80g", "h100", "h200"), 3.0))


def ask_h100(where: Site, *lines: str, **fields: Any) -> Decision:
    return ask(script("gpu:h100:1", *lines, LLAMA_8B), where, **(ON_H100 | fields))


# whole decisions


def test_what_is_the_same_everywhere_stays_where_the_user_put_it() -> None:
    decision = ask_h100(with_rates({}), "#OMNIPILOT auto")
    assert decision.verdict is Verdict.PASS, decision.messages


def test_auto_moves_to_what_is_surely_worth_more() -> None:
    decision = ask_h100(with_rates({("h200", 1): 3000.0}), "#OMNIPILOT auto concurrency=32")
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.chosen is not None
    assert (decision.finding.chosen.arm.gpu, decision.finding.chosen.arm.n_gpus) == ("h200", 1)
    assert decision.finding.gain is not None
    assert decision.finding.gain.confidence > 0.99


def test_without_auto_the_users_choice_is_kept_and_advised_on() -> None:
    decision = ask_h100(with_rates({("h200", 1): 3000.0}), "#OMNIPILOT concurrency=32")
    assert (decision.verdict, decision.finding.change) == (Verdict.ADVISE, None)
    assert decision.messages[0].startswith("omnipilot: better: 1x H200")


def test_gpu_type_left_open_is_filled_in_where_it_is_worth_more() -> None:
    where = with_rates({("h200", 1): 3000.0})
    decision = ask(script("gpu:1", "#OMNIPILOT concurrency=32", LLAMA_8B), where)
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.change is not None
    assert decision.finding.change.fields == {"partition": "h200", "gres": "gpu:h200:1"}


def test_number_of_gpus_that_was_asked_for_is_not_open() -> None:
    decision = ask(script("gpu:1", LLAMA_8B), with_rates({("h200", 2): 6000.0}))
    assert decision.verdict is Verdict.ADVISE
    assert decision.finding.chosen is not None
    assert decision.finding.chosen.arm.n_gpus == 2


def test_gain_below_the_margin_is_not_mentioned() -> None:
    # the margin is a tenth of 24 $; 35 tok/s more are worth 2 $
    decision = ask_h100(with_rates({("h200", 1): 1035.0}, ratio=1.0001), "#OMNIPILOT auto")
    assert (decision.verdict, decision.messages) == (Verdict.PASS, ())


def test_gain_that_may_be_below_the_margin_is_advised_on() -> None:
    # 60 tok/s more are worth 3.46 $ +- 1 $: more than nothing for sure, perhaps not than 2.40 $
    rates = {("h200", 1): 1060.0, ("h200", 2): 1.0}
    decision = ask_h100(with_rates(rates, ratio=1.024), "#OMNIPILOT auto concurrency=32")
    assert decision.verdict is Verdict.ADVISE
    assert decision.finding.gain is not None
    assert decision.finding.gain.confidence > 0.8


def test_gain_within_the_noise_is_not_mentioned() -> None:
    decision = ask_h100(with_rates({("h200", 1): 1060.0}, ratio=1.3), "#OMNIPILOT auto")
    assert (decision.verdict, decision.messages) == (Verdict.PASS, ())


def test_of_places_that_are_equally_good_the_cheaper_is_taken() -> None:
    rates = {("h200", 1): 3000.0, ("a100-80g", 1): 2985.0}
    where = priced(with_rates(rates), {"h200": 3.1})
    decision = ask_h100(where, "#OMNIPILOT auto concurrency=32")
    assert decision.finding.chosen is not None
    assert decision.finding.chosen.arm.gpu == "a100-80g"


def test_asked_arm_out_of_support_makes_it_abstain_even_with_auto() -> None:
    where = with_rates({})
    rates = {place: rate for place, rate in EQUAL.items() if place[0] != "h100"}
    where = replace(where, predictor=Rates(rates))
    decision = ask_h100(where, "#OMNIPILOT concurrency=32")
    assert decision.verdict is Verdict.ABSTAIN
    assert decision.finding.reason.code == "out_of_support"
    assert "gpu 'h100' was not measured" in decision.messages[0]
    assert len(decision.arms) > 1
    assert ask_h100(where, "#OMNIPILOT auto").finding.change is None


def test_arm_out_of_support_is_listed_and_never_preferred() -> None:
    rates = {place: rate for place, rate in EQUAL.items() if place[0] != "h200"}
    where = replace(with_rates({}), predictor=Rates(rates | {("a100-40g", 1): 1.0}))
    decision = ask_h100(where, "#OMNIPILOT auto concurrency=32")
    assert decision.verdict is Verdict.PASS
    listed = ask(
        script("gpu:a100:1", "#OMNIPILOT auto concurrency=32", LLAMA_8B),
        where,
        time_limit_min=480,
    )
    unknown = [rated for rated in listed.arms if rated.arm.gpu == "h200"]
    assert unknown
    assert all(rated.utility_usd is None for rated in unknown)
    assert listed.finding.chosen is not None
    assert listed.finding.chosen.arm.gpu != "h200"


def test_gpu_without_a_price_makes_places_incomparable() -> None:
    decision = ask_h100(priced(with_rates({}), {"h100": None}))
    assert decision.verdict is Verdict.ABSTAIN
    assert decision.messages[0].endswith(
        "H100-SXM5-80GB has no price, so places cannot be compared"
    )


def test_without_a_cost_model_nothing_is_compared() -> None:
    decision = ask_h100(site(), "#OMNIPILOT auto")
    assert (decision.verdict, decision.finding.gain) == (Verdict.PASS, None)


def rising(concurrency: int) -> float:
    """More GPUs pay off from 20 requests at a time on."""
    return 1.0 if concurrency < 20 else 8.0


def test_rewrite_that_another_plausible_load_would_turn_is_advice_that_says_so() -> None:
    where = with_rates({}, by_load=rising)
    decision = ask_h100(where, "#OMNIPILOT auto")
    assert decision.verdict is Verdict.ADVISE
    assert decision.finding.gain is not None
    assert decision.finding.gain.flip == 8
    assert "at 8 at a time yours is worth more" in decision.messages[1]


def test_load_that_the_user_said_is_not_doubted() -> None:
    where = with_rates({}, by_load=rising)
    decision = ask_h100(where, "#OMNIPILOT auto concurrency=32")
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.gain is not None
    assert decision.finding.gain.flip is None


def test_load_of_earlier_jobs_is_doubted_within_their_range_only() -> None:
    load = UsualLoad(
        isl=1024,
        osl=256,
        concurrency=32,
        concurrency_lo=24,
        concurrency_hi=40,
        requests_per_s=None,
        n_jobs=7,
    )
    where = replace(with_rates({}, by_load=rising), loads=UsualLoads(by_user={"alice": load}))
    decision = ask_h100(where, "#OMNIPILOT auto")
    assert decision.verdict is Verdict.REWRITE
    assert "for 32 requests at a time (as in your last 7 jobs)" in decision.messages[1]


def test_plausible_load_out_of_support_tells_nothing() -> None:
    class Measured(Rates):
        def _one(self, each: Any, workload: Workload) -> Any:
            found = super()._one(each, workload)
            return found if workload.concurrency == 32 else replace(found, targets={})

    where = replace(with_rates({}), predictor=Measured(EQUAL | {("h200", 1): 3000.0}))
    decision = ask_h100(where, "#OMNIPILOT auto")
    assert decision.verdict is Verdict.REWRITE


def test_offered_load_makes_more_throughput_worthless() -> None:
    where = with_rates({("h200", 1): 3000.0})
    decision = ask_h100(where, "#OMNIPILOT auto concurrency=32 requests_per_s=2 osl=256")
    assert decision.verdict is Verdict.PASS


def test_pessimist_does_not_move_for_a_wide_interval() -> None:
    where = with_rates({("h200", 1): 2000.0}, ratio=2.5)
    where = replace(
        where, policy=replace(where.policy, rewrite_confidence=0.5, rewrite_margin_frac=0.0)
    )
    lines = "#OMNIPILOT auto concurrency=32"
    assert ask_h100(where, lines).verdict is Verdict.REWRITE
    worst = replace(where.utility, pessimistic=True)
    rates = {("h100", 1): 1000.0, ("h200", 1): 2000.0}

    class Wide(Rates):
        def _one(self, each: Any, workload: Workload) -> Any:
            self.ratio = 2.5 if each.gpu.id == "h200" else 1.01
            return super()._one(each, workload)

    where = replace(where, predictor=Wide(EQUAL | rates), utility=worst)
    assert ask_h100(where, lines).verdict is Verdict.PASS


# the choice among rated arms, on any worth


@lru_cache
def listed_arms() -> tuple[RatedArm, ...]:
    """Return arms of the sandbox's cluster on which an 8B model starts."""
    where = site()
    text = script("gpu:h100:1", LLAMA_8B)
    submission, _ = directives.submission_of(text.encode())
    request = tres.request_of(submission)
    found = serving.find(
        submission, request, environment_is_complete=True, expired=lambda: False
    ).launches[0]
    known = where.models(found.engine.model or "")
    assert isinstance(known, KnownModel)
    question = Question(
        submission=submission,
        request=request,
        directives=directives.omnipilot(submission.script),
        launch=found,
        model=known.facts,
        workload=Workload(isl=1024, osl=256, concurrency=32),
        site=where,
        engines=Engines(found.engine, where.vllm),
    )
    return tuple(arms.smallest_first(question))[:6]


WORTHS = st.tuples(
    *[
        st.tuples(
            st.sampled_from([0.0, 1.0, 5.0, 20.0, 40.0]),  # more or less value
            st.sampled_from([1.0, 2.0, 4.0]),  # price
            st.sampled_from([0.0, 1.0, 8.0]),  # sd of value
        )
        for _ in range(6)
    ]
)
POLICIES = st.builds(
    lambda margin, sure: replace(
        site().policy, rewrite_margin_frac=margin, rewrite_confidence=sure
    ),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.sampled_from([0.5, 0.8, 0.95]),
)


def made(worths: tuple[tuple[float, float, float], ...]) -> list[RatedArm]:
    """Return the arms with such values, prices and spreads; the first one is asked."""
    found = []
    for rated, (value, price, sd) in zip(listed_arms(), worths, strict=True):
        gpu = replace(rated.pool.gpu, price_usd_per_gpu_hour=price)
        cost = price * rated.arm.n_gpus
        terms = UtilityTerms(value=value, gpu_cost=cost, slo=0.0, wait=0.5, failure=0.25)
        pool = replace(rated.pool, gpu=gpu)
        found.append(replace(rated, pool=pool, terms=terms, value_sd_usd=sd))
    return found


@given(
    worths=WORTHS,
    policy=POLICIES,
    surely=st.booleans(),
    which=st.integers(0, 5),
    more=st.sampled_from([0.5, 3.0, 20.0]),
)
@pytest.mark.parametrize("term", ["gpu_cost", "wait", "failure"])
def test_an_arm_that_costs_more_is_chosen_no_sooner(
    term: str,
    *,
    worths: tuple[tuple[float, float, float], ...],
    policy: PolicySettings,
    surely: bool,
    which: int,
    more: float,
) -> None:
    asked, *others = made(worths)
    before = winner(asked, others, policy, surely=surely)
    everything = [asked, *others]
    worse = everything[which]
    assert worse.terms is not None
    terms = replace(worse.terms, **{term: getattr(worse.terms, term) + more})
    pool = worse.pool
    if term == "gpu_cost":
        price = (pool.gpu.price_usd_per_gpu_hour or 0.0) + more / worse.arm.n_gpus
        pool = replace(pool, gpu=replace(pool.gpu, price_usd_per_gpu_hour=price))
    everything[which] = replace(worse, terms=terms, pool=pool)
    asked, *others = everything
    after = winner(asked, others, policy, surely=surely)
    if which == 0:
        # the user's own choice got worse: what won over it still does
        assert before is None or after is not None
    elif before is None or before.arm != worse.arm:
        assert after is None or after.arm != worse.arm


@given(WORTHS, POLICIES, st.booleans(), st.randoms(use_true_random=False))
def test_choice_does_not_depend_on_the_order_of_arms(
    worths: tuple[tuple[float, float, float], ...],
    policy: PolicySettings,
    surely: bool,
    order: random.Random,
) -> None:
    asked, *others = made(worths)
    first = winner(asked, others, policy, surely=surely)
    order.shuffle(others)
    second = winner(asked, others, policy, surely=surely)
    assert (first and first.arm) == (second and second.arm)


@given(WORTHS, POLICIES)
def test_what_is_moved_to_would_be_advised_as_well(
    worths: tuple[tuple[float, float, float], ...], policy: PolicySettings
) -> None:
    asked, *others = made(worths)
    if winner(asked, others, policy, surely=True) is not None:
        assert winner(asked, others, policy, surely=False) is not None


@given(WORTHS, POLICIES)
def test_arms_without_worth_never_win(
    worths: tuple[tuple[float, float, float], ...], policy: PolicySettings
) -> None:
    asked, *others = made(worths)
    unknown = [replace(rated, terms=None) for rated in others]
    assert winner(asked, unknown, policy, surely=False) is None
    assert all(valuing.confidence(rated, asked) == 0.0 for rated in unknown)


def test_the_asked_place_is_no_other_place() -> None:
    asked, *others = made(((40.0, 1.0, 8.0),) * 6)
    policy = replace(site().policy, rewrite_margin_frac=0.0, rewrite_confidence=0.5)
    twin = replace(asked, terms=replace(asked.terms, value=99.0))  # type: ignore[type-var]
    assert winner(asked, [twin], policy, surely=True) is None
    assert choosing.winner(asked, [*others, twin], policy, surely=True) is not twin
