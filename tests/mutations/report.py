"""Mutations of callbacks, pages and reports: rows kept twice, stops too early, texts that become
HTML, numbers that are not those of the run."""

from mutations import killed_by, mutations_of

_LOGS = "callbacks/test_logs.py"
_AGAIN = f"{_LOGS}::test_rows_of_steps_that_are_done_again_are_dropped"
_STOPS = "callbacks/test_stopping.py"
_REPORT = "results/test_report.py"
_PAGE = "page/test_page.py"

LOGS = mutations_of(
    "callbacks/logs.py",
    (
        "if progress.start != self.step:",
        "if self.step is None:",
        f"{_LOGS}::test_a_new_run_begins_the_log_anew_also_with_the_same_callback",
    ),
    ("if at is not None and at <= step]", "if at is not None]", _AGAIN),
    ('if line.endswith("\\n")]', "if line]", _AGAIN),
    (
        "kept if step else []",
        "kept",
        f"{_LOGS}::test_columns_of_another_run_are_not_mixed_in",
    ),
    (
        'if progress.evaluation or progress.metadata.kind != "train":',
        "if True:",
        f"{_LOGS}::test_networks_leave_a_row_after_every_test",
    ),
)
PROGRESS = mutations_of(
    "run/progress.py",
    (
        'return self.step - len(self.rows["steps"]["rung_of"])',
        "return self.step",
        f"{_LOGS}::test_every_chunk_leaves_a_row_of_what_the_callbacks_saw",
    ),
)
STOPS = mutations_of(
    "callbacks/stopping.py",
    (
        "int(progress.round_trips.min()) if counted else 0",
        "int(progress.round_trips.min())",
        f"{_STOPS}::test_round_trips_count_from_burn_in_in_every_chain",
    ),
    (
        "trusted = smallest >= ENOUGH_DRAWS * so_far.num_chains",
        "trusted = True",
        f"{_STOPS}::test_rhat_is_that_over_chains_and_over_replicas",
    ),
    (
        "if exchanges(so_far):",
        "if False:",
        f"{_STOPS}::test_replicas_that_disagree_or_are_unknown_do_not_stop",
    ),
    (
        "holds = all(holds for holds, _ in reasons)",
        "holds = any(holds for holds, _ in reasons)",
        f"{_STOPS}::test_an_effective_size_is_that_of_the_summary",
    ),
    (
        "part.rung_of[:, :num_steps]",
        "part.rung_of",
        f"{_STOPS}::test_a_resumed_run_is_judged_by_all_its_draws",
    ),
)
PAGE = mutations_of(
    "page/render.py",
    (
        "return html.escape(str(text), quote=True)",
        "return str(text)",
        f"{_PAGE}::test_no_text_becomes_html",
    ),
)
SERVER = mutations_of(
    "page/server.py",
    (
        'in (HOST, "localhost")',
        'not in ("",)',
        f"{_PAGE}::test_the_server_shows_the_page_and_nothing_else",
    ),
)
_TEMPERED = "networks/test_plots.py::test_a_tempered_ladder_is_that_of_the_posterior"
_UNITS = "networks/test_report.py::test_learning_rates_and_temperatures_are_those_that_were_given"
REPORT = [
    *mutations_of(
        "results/plots.py",
    ),
    *killed_by(
        _TEMPERED,
        "networks/trained.py",
        ('metadata.unit == "total" or', 'metadata.unit == "total" and'),
    ),
    *mutations_of(
        "results/report/exchange.py",
        (
            "shown[:, every - 1 :: every]",
            "shown[:, ::every]",
            f"{_REPORT}::test_long_runs_are_thinned",
        ),
    ),
    *mutations_of(
        "results/report/draws.py",
        ("(order + 0.5) / values.size", "order / values.size", f"{_REPORT}::test_traces_and_ranks"),
    ),
    *mutations_of(
        "results/report/truth.py",
        (
            "np.sqrt(max(diagnostics.effective_size(values), 1.0))",
            "np.sqrt(values.size)",
            f"{_REPORT}::test_the_truth_is_compared_in_standard_errors",
        ),
    ),
    *mutations_of(
        "networks/report.py",
        (
            "np.argsort(-entropies)",
            "np.argsort(entropies)",
            "networks/test_report.py::test_the_most_uncertain_images_come_first",
        ),
        (
            "if likelihood is None or not len(",
            "if not len(",
            "networks/test_trained_predict.py::test_a_problem_without_a_test_is_trained_and_predicts",
        ),
        (
            "_reliability(trained) if is_of_classes else _coverage(trained)",
            "_reliability(trained)",
            "networks/test_regression.py::test_a_training_with_learned_noise",
        ),
    ),
    *mutations_of(
        "report_run.py",
        (
            "if version != self._version:",
            "if True:",
            f"{_REPORT}::test_live_pages_wait_follow_and_survive",
        ),
    ),
]

MUTATIONS = [*LOGS, *PROGRESS, *STOPS, *PAGE, *SERVER, *REPORT]
