"""Problems: seeded, resumable, and held out by what they ask."""

import pytest

from roll_pipelines.data import ProblemSource, ProblemStream, TaskConfig, held_out_problems

SUMS = TaskConfig(
    name="chain_sum",
    args={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    prompt_template="{expression}=",
    num_held_out=30,
)


def test_the_same_seed_gives_the_same_problems_and_another_one_others() -> None:
    first, again, other = (ProblemSource(SUMS, seed=seed) for seed in (5, 5, 6_000_000))
    assert [first[i] for i in range(20)] == [again[i] for i in range(20)]
    assert [first[i].prompt for i in range(20)] != [other[i].prompt for i in range(20)]


def test_the_template_is_filled_from_question_and_metadata() -> None:
    problem = ProblemSource(SUMS, seed=0)[0]
    assert problem.prompt == f"{problem.entry['metadata']['expression']}="
    assert eval(problem.prompt.rstrip("=")) == int(problem.answer)
    plain = ProblemSource(TaskConfig(name="chain_sum", args=SUMS.args), seed=0)[0]
    assert plain.prompt == problem.entry["question"]


def test_no_held_out_problem_is_ever_trained_on_even_in_a_small_task() -> None:
    held_out = {problem.prompt for problem in held_out_problems(SUMS, seed=0)}
    stream = ProblemStream(ProblemSource(SUMS, seed=0), held_out=held_out)
    assert len(held_out) == 30
    assert not held_out & {problem.prompt for problem in stream.take(2000)}


def test_held_out_problems_come_from_seeds_that_training_does_not_reach() -> None:
    # Problem i of seed s is that of seed s + i: neighbouring seeds would share nearly all of them.
    assert ProblemSource(SUMS, seed=0)[1].prompt == ProblemSource(SUMS, seed=1)[0].prompt
    trained = {ProblemSource(SUMS, seed=0)[i].entry["question"] for i in range(3)}
    assert trained  # the generator is what the line above says it is
    first = held_out_problems(SUMS, seed=0)[0]
    assert first == ProblemSource(SUMS, seed=1_000_003)[0]


def test_a_stream_goes_on_where_its_position_says() -> None:
    source = ProblemSource(SUMS, seed=3)
    held_out = [problem.prompt for problem in held_out_problems(SUMS, seed=3)]
    whole = ProblemStream(source, held_out=held_out)
    first, rest = whole.take(17), whole.take(5)
    resumed = ProblemStream(source, held_out=held_out)
    assert resumed.take(17) == first
    again = ProblemStream(source, held_out=held_out, position=resumed.position)
    assert again.take(5) == rest


def test_more_held_out_problems_than_the_task_has_are_refused() -> None:
    config = TaskConfig(name="chain_sum", args=SUMS.args, num_held_out=1000)
    with pytest.raises(ValueError, match=r"1000 different problems, but 'chain_sum' .* gave only 2\d\d"):
        held_out_problems(config, seed=0)


def test_a_task_of_which_all_problems_are_held_out_is_refused() -> None:
    class Same:
        """A source with one problem."""

        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> object:
            return ProblemSource(SUMS, seed=0)[0]

    only = ProblemSource(SUMS, seed=0)[0].prompt
    stream = ProblemStream(Same(), held_out=[only])  # type: ignore[arg-type]  # stands in for a task that ends
    with pytest.raises(ValueError, match="too few different problems"):
        stream.take(1)


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"no task 'chain_sums'; did you mean 'chain_sum'\?"):
        ProblemSource(TaskConfig(name="chain_sums"), seed=0)


def test_settings_that_the_task_refuses_are_named() -> None:
    with pytest.raises(ValueError, match=r"task\.args \{'min_term': 2\} do not suit the task 'chain_sum'"):
        ProblemSource(TaskConfig(name="chain_sum", args={"min_term": 2}), seed=0)


def test_a_template_with_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"asks for 'word', which a problem of 'chain_sum' .*expression"):
        ProblemSource(TaskConfig(name="chain_sum", args=SUMS.args, prompt_template="{word}"), seed=0)
