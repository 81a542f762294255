"""The product with one fault put into it, and the test that has to find the fault: ``python -m assets_tests.mutants``.

Each mutant is one replacement of text. The command copies the product and its tests to another folder, makes the replacement there, and
runs the mutant's test, which has to fail, and has to pass without the replacement. The exit code is 1 where a test does not. Words as
arguments choose the mutants whose description contains one of them.

Belongs here: faults that lose, double or empty rows, or move a watermark past rows that are not in the lake. Does not belong: the tests,
and the table of the mutants (``docs/testing.md``), which ``test_promises`` compares with this list.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assets_tests.harness import small_spark
from assets_tests.places import file_named
from incremental_assets.spark.embedded.server import in_use
from incremental_assets.spark.session import ensure_server, stop_server

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    "incremental_assets",
    "assets_tests",
    "benchmarks",
    "docs",
    "pyproject.toml",
    "dagster.yaml",
    "workspace.yaml",
    "README.md",
    "Makefile",
)
LINKED = (".jars", ".java")


@dataclass(frozen=True)
class Mutant:
    """``fault``: what is wrong with the replacement, in words; ``file``: the path below ``incremental_assets``; ``old``: a text that occurs
    in the file once; ``new``: what replaces it; ``test``: the fast test that finds the fault."""

    fault: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = (
    Mutant(
        "The watermark moves although somebody is at work who may still commit below it",
        "core/watermark.py",
        "    if highest is not None and not held_by:\n",
        "    if highest is not None:\n",
        "test_watermark_rule.py::test_no_history_loses_or_doubles_a_row",
    ),
    Mutant(
        "A pending value is never taken",
        "core/watermark.py",
        "candidates = [p.value for p in known if not p.open]",
        "candidates = []",
        "test_watermark_rule.py::test_the_watermark_moves_although_some_transaction_is_always_open",
    ),
    Mutant(
        "A pending value is taken although those who held it back are still at work",
        "core/watermark.py",
        "candidates = [p.value for p in known if not p.open]",
        "candidates = [p.value for p in known]",
        "test_watermark_rule.py::test_no_history_loses_or_doubles_a_row",
    ),
    Mutant(
        "The watermark passes the end of what was read",
        "core/watermark.py",
        "return value if covered_to is True else min(value, covered_to)",
        "return value",
        "test_watermark_rule.py::test_the_watermark_stops_where_the_read_ends",
    ),
    Mutant(
        "Of two watermarks the higher one counts",
        "core/watermark.py",
        "event is None else min(self.watermark, event)",
        "event is None else max(self.watermark, event)",
        "test_stages.py::test_after_a_restore_the_lower_watermark_counts",
    ),
    Mutant(
        "Rows of the lake without identifier are not compared",
        "delta/local_query.py",
        "    if include_nulls:\n        either",
        "    if False:\n        either",
        "test_local_rows.py::test_rows_that_this_process_should_not_read_are_left_to_spark",
    ),
    Mutant(
        "Keys that are new are taken for keys that are gone",
        "delta/local_rows.py",
        "_only_in(old.select(list(key)), new.select(list(key)))",
        "_only_in(new.select(list(key)), old.select(list(key)))",
        "test_local_rows.py::test_keys_that_are_missing_and_keys_that_are_not_unique",
    ),
    Mutant(
        "Rows are compared with a version of the lake that the plan has not seen",
        "delta/local_rows.py",
        "    readable = readable_here(table, delta.version())\n",
        "    readable = readable_here(table)\n",
        "test_local_rows.py::test_rows_that_this_process_should_not_read_are_left_to_spark",
    ),
    Mutant(
        "The lake's predicate leaves out the rows without identifier",
        "delta/sql.py",
        "    if include_nulls:\n        either",
        "    if False:\n        either",
        "test_predicates.py::test_source_and_lake_select_the_same_rows",
    ),
    Mutant(
        "The source's predicate leaves out the rows without identifier",
        "databases/postgres/queries.py",
        "            if include_nulls:\n",
        "            if False:\n",
        "test_predicates.py::test_source_and_lake_select_the_same_rows",
    ),
    Mutant(
        "The lake's window excludes its lower bound",
        "delta/sql.py",
        "{one} >= {literal(cursor_type, window.lower)}",
        "{one} > {literal(cursor_type, window.lower)}",
        "test_predicates.py::test_source_and_lake_select_the_same_rows",
    ),
    Mutant(
        "The lake's window includes its upper bound",
        "delta/sql.py",
        "{greatest} < {literal(cursor_type, window.upper)}",
        "{greatest} <= {literal(cursor_type, window.upper)}",
        "test_predicates.py::test_source_and_lake_select_the_same_rows",
    ),
    Mutant(
        "The source's window excludes its lower bound",
        "databases/postgres/queries.py",
        'sql.SQL("{} >= {}").format(name, literal(cursor_type, window.lower))',
        'sql.SQL("{} > {}").format(name, literal(cursor_type, window.lower))',
        "test_predicates.py::test_source_and_lake_select_the_same_rows",
    ),
    Mutant(
        "The safety lag is not read again",
        "core/lag_window.py",
        "max(self.lag, ",
        "max(0, ",
        "test_refresh.py::test_late_rows_inside_the_lag_are_found_after_a_refresh",
    ),
    Mutant(
        "The hour that comes twice is read once",
        "core/lag_window.py",
        "set_back(self.cursor_type, value, self.zone)",
        "0",
        "test_safety_lag.py::test_rows_of_the_hour_that_comes_twice_arrive",
    ),
    Mutant(
        "The watermark is not stored after the rows",
        "delta/write.py",
        "        set_property(spark, table, STATE_PROPERTY, text, None if by_spark else outcome.data_version, container.comments)\n",
        "",
        "test_sync.py::test_only_what_is_new_is_read",
    ),
    Mutant(
        "The watermark is stored before the rows",
        "delta/write.py",
        "        outcome = first_that_can(",
        "        set_property(spark, table, STATE_PROPERTY, write_batch.state.to_json(container.cursor_type))\n"
        "        outcome = first_that_can(",
        "test_stages.py::test_a_first_load_that_ends_before_its_rows_is_repeated",
    ),
    Mutant(
        "A commit names a file of rows that gets to the store only when the process ends",
        "delta/store.py",
        "        self._open[name].complete()\n",
        "        __import__('atexit').register(self._open[name].complete)\n",
        "test_kills_on_s3.py::test_a_sync_that_is_killed_between_rows_commit_and_state_loses_and_doubles_no_row",
    ),
    Mutant(
        "A table that another host wrote since the plan is written all the same",
        "delta/write.py",
        "if (head.version if head else None) != write_batch.base_version:",
        "if False:",
        "test_stages.py::test_a_commit_of_another_host_after_the_plan_is_not_overwritten",
    ),
    Mutant(
        "The last look before a write sees nothing",
        "delta/guards.py",
        "    if table.data_commits_since(head.version):",
        "    if False:",
        "test_stages.py::test_a_commit_of_another_host_just_before_the_write_is_not_overwritten",
    ),
    Mutant(
        "A refresh may empty a partition unasked",
        "delta/guards.py",
        "if write_batch.allow_empty or head.version == 0:",
        "if True:",
        "test_dagster.py::test_a_refresh_that_would_empty_a_partition_says_what_to_do",
    ),
    Mutant(
        "An upsert does not delete rows that are gone",
        "delta/merge.py",
        'f"WHEN MATCHED AND s.{GONE} THEN {removed} WHEN MATCHED THEN UPDATE',
        'f"WHEN MATCHED AND NOT s.{GONE} THEN UPDATE',
        "test_merge.py::test_a_deletion_is_written_by_a_merge",
    ),
    Mutant(
        "An upsert takes rows that moved to another partition for deleted ones",
        "delta/merge.py",
        "found += [chunk[position] for position in write_batch.by_key.existing(chunk)]",
        "pass",
        "test_refresh.py::test_a_refresh_follows_rows_that_moved_to_another_partition",
    ),
    Mutant(
        "A MERGE with bounds misses rows to be deleted outside of them",
        "delta/merge.py",
        "bounds = bounds if gone is None else None",
        "bounds = bounds",
        "test_merge.py::test_a_deletion_is_written_by_a_merge",
    ),
    Mutant(
        "The fingerprint does not change with the container's settings",
        "databases/postgres/reader.py",
        '" md5({settings}) from {table} where {scope}"',
        "\" left(md5({settings}), 0) || 'x' from {table} where {scope}\"",
        "test_predicates.py::test_the_fingerprint_changes_with_rows_columns_and_settings",
    ),
    Mutant(
        "The fingerprint counts rows only",
        "databases/postgres/reader.py",
        "coalesce(sum({hash}::numeric), 0)::text",
        "left(coalesce(sum({hash}::numeric), 0)::text, 0) || '0'",
        "test_predicates.py::test_the_fingerprint_changes_with_rows_columns_and_settings",
    ),
    Mutant(
        "A skip does not ask whether the lake is as it was left",
        "databases/stored_state.py",
        "return replace(state, fingerprint=None, read_at=None)",
        "return state",
        "test_stages.py::test_rows_that_somebody_deleted_from_the_lake_come_back",
    ),
    Mutant(
        "Another commit of the same number is taken for the one that left the rows",
        "delta/table.py",
        "if state.data_commit not in (None, found[-1].id):",
        "if False:",
        "test_left.py::test_rows_of_a_commit_that_was_replaced_by_another_of_its_number_come_back",
    ),
    Mutant(
        "Spark's readers do not join the exported snapshot",
        "databases/postgres/extract.py",
        " SET TRANSACTION SNAPSHOT '{snapshot}';",
        "",
        "test_sync.py::test_all_readers_see_the_same_snapshot_of_the_source",
    ),
    Mutant(
        "A sweep deletes however many rows are gone",
        "databases/sweep.py",
        "gone if gone_rows <= most else []",
        "gone",
        "test_sweep.py::test_a_sweep_that_would_delete_too_much_is_refused_and_the_new_rows_are_there_all_the_same",
    ),
    Mutant(
        "A sweep deletes rows that the source has under another spelling of their key",
        "databases/sweep.py",
        "    respelled = still_there(write_batch, key_texts(gone))[0]\n",
        "    respelled = []\n",
        "test_sweep.py::test_a_key_that_is_written_in_another_way_stays_in_the_lake",
    ),
    Mutant(
        "The time of a sweep is not stored",
        "databases/sweep.py",
        "swept_at=time.time_ns() // 1000)",
        "swept_at=write_batch.state.swept_at)",
        "test_sweep.py::test_a_sweep_comes_when_it_is_due_and_only_then",
    ),
    Mutant(
        "The partitions that lost rows in a sweep are not told",
        "databases/sync.py",
        "            self._note_partitions(self._swept.values)\n",
        "",
        "test_sweep.py::test_a_row_that_was_deleted_below_the_watermark_leaves_the_lake",
    ),
    Mutant(
        "After a kill, a column that is in the lake already counts as filled",
        "databases/sync.py",
        "known = before.columns\n",
        "known = None\n",
        "test_new_columns.py::test_a_sync_that_was_killed_after_it_had_added_the_column_lists_them",
    ),
    Mutant(
        "Partitions with older rows of a new column are forgotten by the next sync",
        "databases/next_state.py",
        "before.unfilled if is_apart else left(before.unfilled, windows)",
        "None",
        "test_new_columns.py::test_partitions_whose_rows_lack_a_default_are_listed_until_they_are_refreshed",
    ),
    Mutant(
        "A refresh marks rows anew that are marked already",
        "delta/local_rows.py",
        "differences(unmarked(self.old), self.new, self.key).missing",
        "found.missing",
        "test_sweep.py::test_a_sync_and_a_refresh_mark_rows_too",
    ),
    Mutant(
        "A row that has returned stays marked",
        "databases/sweep.py",
        "    there = [*key_texts(returned), *respelled]\n",
        "    there = [*respelled]\n",
        "test_sweep.py::test_soft_deletes_mark_the_row_and_keep_it",
    ),
    Mutant(
        "An audit takes marked rows for rows that should not be there",
        "delta/hashed_rows.py",
        '"true" if marks is None else',
        '"true" if marks is not None else',
        "test_sweep.py::test_the_audit_takes_marked_rows_for_absent",
    ),
    Mutant(
        "An audit of few rows takes marked ones for rows that should not be there",
        "delta/local_hashed_rows.py",
        'unmarked = "" if marks is None else',
        'unmarked = "" if True else',
        "test_sweep.py::test_the_audit_takes_marked_rows_for_absent",
    ),
    Mutant(
        "Files are committed on top of a concurrent commit",
        "delta/commit_files.py",
        "if not put_version(folder_at(table.address), head.version + 1, actions):",
        "if not any(put_version(folder_at(table.address), head.version + n, actions) for n in (1, 2)):",
        "test_add_files.py::test_a_commit_on_another_version_is_refused",
    ),
    Mutant(
        "A row of a file that is written anew comes back from its deletion vector",
        "delta/replaced_files.py",
        "        live = self.there.live_rows(self.file, rows.num_rows)\n",
        "        live = None\n",
        "test_local_write.py::test_files_of_spark_are_written_anew_or_marked",
    ),
    Mutant(
        "Rows that are deleted by a deletion vector are compared",
        "delta/local_files.py",
        "among = among if live is None else",
        "among = among if True else",
        "test_local_rows.py::test_rows_of_files_with_deletion_vectors_are_those_that_spark_reads",
    ),
    Mutant(
        "Only the first row group of a file that has rows of the windows is read",
        "delta/local_files.py",
        "            chosen = [group for group, part in enumerate(parts) if part.true_count]\n",
        "            chosen = [group for group, part in enumerate(parts) if part.true_count][:1]\n",
        "test_local_rows.py::test_rows_of_files_with_deletion_vectors_are_those_that_spark_reads",
    ),
    Mutant(
        "A row comes back when others of its file are marked",
        "delta/replaced_files.py",
        "deleted = deleted | ~live.to_numpy(",
        "deleted = deleted & ~live.to_numpy(",
        "test_local_write.py::test_batches_one_after_another",
    ),
    Mutant(
        "A file with marks keeps the marks that it had",
        "delta/log.py",
        "found.pop(key, None)",
        'found.pop(("", ""), None)',
        "test_local_write.py::test_batches_one_after_another",
    ),
    Mutant(
        "The old row of a key is looked for in the batch's windows only",
        "delta/local_write.py",
        "compared.deleted_at)]), RowsOfKeys(keys))",
        "compared.deleted_at)]), RowsOfBoth(RowsOfWindows(write_batch.identifier, write_batch.windows, False), RowsOfKeys(keys)))",
        "test_local_write.py::test_rows_are_replaced_by_key",
    ),
    Mutant(
        "An append replaces rows of other windows that have the same key",
        "delta/local_write.py",
        "RowsOfBoth(windows, RowsOfKeys(lost.select(list(compared.key))))",
        "RowsOfKeys(lost.select(list(compared.key)))",
        "test_local_write.py::test_a_key_in_another_window_stays",
    ),
    Mutant(
        "Files are taken for such without rows by bounds that Spark has cut",
        "delta/local_files.py",
        "highest = pc.add(highest, _MICROS_CUT)",
        "highest = pc.add(highest, 0)",
        "test_local_write.py::test_the_last_row_of_a_file_of_spark_is_replaced",
    ),
    Mutant(
        "Keys that have moved are deleted without Spark",
        "delta/local_write.py",
        "if still_there(write_batch, key_texts(missing))[0]:",
        "if False:",
        "test_local_write.py::test_spark_writes_what_must_be_asked_about",
    ),
    Mutant(
        "The rows of the lag are added to those that the lake has",
        "delta/replace_by_files.py",
        "place = find_replaced(table, head, engine, schema, windows, wanted)",
        "place = find_replaced(table, head, engine, schema, RowsOfWindows(write_batch.identifier, (), False), wanted)",
        "test_arrow_path.py::test_a_load_in_windows_replaces_the_lag_and_adds_the_rest",
    ),
    Mutant(
        "Many rows of an upsert leave the rows that the source has deleted",
        "delta/replace_by_files.py",
        "replaced = RowsOfEither(keys, DigestedKeys.of(key, [lost])) if missing else keys",
        "replaced = keys",
        "test_replace_by_files.py::test_files_leave_and_count_what_a_comparison_in_memory_does",
    ),
    Mutant(
        "Many keys that have moved are deleted",
        "delta/replace_by_files.py",
        "if still_there(write_batch, key_texts(lost.drop_null()))[0]:",
        "if False:",
        "test_replace_by_files.py::test_what_must_be_asked_about_is_left_to_spark_and_leaves_no_file",
    ),
    Mutant(
        "An interrupted commit leaves a version whose files are gone",
        "delta/commit_files.py",
        "    except Exception:  # and no interrupt",
        "    except BaseException:  # and no interrupt",
        "test_replace_by_files.py::test_an_interrupt_after_the_commit_takes_no_file_away",
    ),
    Mutant(
        "A key with NULL is taken for one with zero",
        "delta/digested_keys.py",
        "                among &= column.is_valid().to_numpy()\n",
        "                among &= True\n",
        "test_replace_by_files.py::test_digests_find_exactly_the_same_keys",
    ),
    Mutant(
        "Rows are marked in a table whose readers look for no marks",
        "delta/replaced_files.py",
        "return is_feature and head",
        "return head",
        "test_replace_by_files.py::test_marks_need_a_table_whose_readers_look_for_them",
    ),
    Mutant(
        "Files are added to tables with column mapping",
        "delta/commit_files.py",
        '("appendOnly", "invariants", "deletionVectors", "timestampNtz")',
        '("appendOnly", "invariants", "deletionVectors", "timestampNtz", "columnMapping")',
        "test_add_files.py::test_tables_that_files_cannot_be_added_to_rightly",
    ),
    Mutant(
        "Floats have bounds in the footers of files",
        "delta/parquet_files.py",
        " if not pa.types.is_floating(field.type)]",
        "]",
        "test_parquet_files.py::test_footers_have_no_bounds_of_floats",
    ),
    Mutant(
        "A decimal's bounds are floats",
        "delta/parquet_files.py",
        '        return format(value, "f")\n',
        "        return str(float(value))\n",
        "test_parquet_files.py::test_bounds_are_exact",
    ),
    Mutant(
        "Of several threads only the files of the last one are committed",
        "databases/postgres/arrow_threads.py",
        "self.files += found",
        "self.files = found",
        "test_arrow_path.py::test_each_value_is_found_by_itself",
    ),
    Mutant(
        "A range that Spark has read twice is committed twice",
        "databases/postgres/arrow_files.py",
        "    if ended != list(range(ranges)):\n",
        "    if not ended:\n",
        "test_arrow_task.py::test_ranges_that_are_missing_or_twice_are_not_committed",
    ),
    Mutant(
        "A key that occurs twice is merged",
        "databases/postgres/reader.py",
        "        return rows[0][0] if rows else None\n\n    def any_true",
        "        return None\n\n    def any_true",
        "test_failures.py::test_a_merge_key_that_is_null_or_occurs_twice_fails_the_sync",
    ),
    Mutant(
        "A table that was dropped and created anew counts as the old one",
        "databases/stored_state.py",
        "relation.id is not None and state.relation != relation.id",
        "relation.id is not None and False",
        "test_source_trouble.py::test_a_table_dropped_and_created_anew_is_refused",
    ),
    Mutant(
        "Another container's table is written",
        "delta/table.py",
        "if head.owner != container.label:",
        "if False:",
        "test_stages.py::test_the_table_of_another_container_is_left_alone",
    ),
    Mutant(
        "Rows of a file that was read before are not replaced, but added again",
        "delta/staged_files.py",
        "head.version > 0 and not write_batch.only_adds:",
        "head.version > 0 and False:",
        "test_files.py::test_small_csv_files_are_synced_without_spark",
    ),
    Mutant(
        "Quotes of CSV are taken for text",
        "files/readers/local_lines.py",
        """for odd in (b'"', b"\\r", b"\\x00", b"\\x01"))""",
        """for odd in (b"\\r", b"\\x00", b"\\x01"))""",
        "test_local_read.py::test_columns_may_have_any_names_that_stay_the_same",
    ),
    Mutant(
        "A new column gets the type that the first block of a file suggests",
        "files/readers/local.py",
        "            if type_ is None or not is_of_type(column, type_):\n",
        "            if type_ is None:\n",
        "test_local_read.py::test_a_type_that_the_beginning_suggests_does_not_hold_for_what_follows",
    ),
    Mutant(
        "Lines that this process does not understand are left out",
        "files/readers/local_lines.py",
        "        if odd.true_count:\n",
        "        if False:\n",
        "test_local_read.py::test_odd_lines_come_out_as_spark_reads_them",
    ),
    Mutant(
        "A commit that is in the log and not visible yet is passed",
        "databases/postgres/capture/log.py",
        "visible = one.snapshot is None or one.snapshot.sees(message.xid)",
        "visible = True",
        "test_capture.py::test_a_commit_that_is_in_the_log_and_not_visible_yet_is_not_lost",
    ),
    Mutant(
        "The key that a row had before is not deleted",
        "databases/postgres/capture/log.py",
        "for row in (old, new) if row is not None",
        "for row in (new or old,) if row is not None",
        "test_capture.py::test_inserts_updates_and_deletes_arrive",
    ),
    Mutant(
        "The slot is advanced past a container that lags",
        "databases/capture_sync.py",
        "log.advance(min([mine[1], *(lsn for slot, lsn in filter(None, reached) if slot == mine[0])]))",
        "log.advance(mine[1])",
        "test_capture.py::test_a_slot_waits_for_the_container_that_lags",
    ),
    Mutant(
        "The position in the log moves with the first of several commits",
        "databases/capture_sync.py",
        "capture=self._next if is_last else before.capture",
        "capture=self._next",
        "test_capture.py::test_a_sync_that_ends_between_two_commits_is_repeated",
    ),
    Mutant(
        "A slot beyond the table's position is no gap",
        "databases/capture_plan.py",
        "if now.confirmed > position.lsn:",
        "if now.confirmed > now.flushed:",
        "test_capture.py::test_a_slot_that_somebody_has_advanced_is_a_gap",
    ),
    Mutant(
        "An answer of the log about another position is taken",
        "databases/slot_counts.py",
        "if answer is not None and asked == since:",
        "if answer is not None:",
        "test_slot_counts.py::test_a_table_that_another_sync_has_moved_meanwhile_is_looked_at_alone",
    ),
    Mutant(
        "An append of a user's own asset is written again when its step is tried again",
        "dagster/own_assets.py",
        'once = f"incremental_assets/{_first_run(context)}/{step}"',
        'once = f"incremental_assets/{_first_run(context)}/{step}/{run.previous_attempt_count}"',
        "test_own_writes.py::test_a_step_that_is_tried_again_does_not_append_twice",
    ),
    Mutant(
        "A user's own asset appends and merges rows outside of the run's partitions",
        "delta/own_tables.py",
        "    if refused is not None:\n",
        "    if False:\n",
        "test_own_writes.py::test_rows_of_other_partitions_are_refused",
    ),
    Mutant(
        "A user's own asset merges rows whose key is NULL",
        "delta/own_frames.py",
        "        if nulls:\n",
        "        if False:\n",
        "test_own_writes.py::test_a_merge_that_is_refused_leaves_the_table_as_it_was",
    ),
    Mutant(
        "The first merge of a user's own asset writes a key twice",
        "delta/own_frames.py",
        "    if examples:\n",
        "    if False:\n",
        "test_own_writes.py::test_a_key_that_occurs_twice_or_is_null_is_refused_by_the_first_merge_too",
    ),
    Mutant(
        "The key of a dynamic partition becomes SQL",
        "delta/sql.py",
        "{', '.join(map(text, condition.texts))}",
        "{', '.join(repr(one) for one in condition.texts)}",
        "test_own_rows.py::test_a_key_does_not_become_sql",
    ),
    Mutant(
        "The partitions that rows have left are not reported",
        "delta/local_write.py",
        "partitioning, [*place.replaced, chosen.rows])",
        "partitioning, [chosen.rows])",
        "test_partition_column.py::test_a_sync_reports_the_partitions_of_old_and_new_rows_and_no_others",
    ),
    Mutant(
        "Spark does not tell which partitions rows have left",
        "delta/touched_partitions.py",
        '"left_semi").selectExpr(start)',
        '"left_semi").limit(0).selectExpr(start)',
        "test_partition_column.py::test_a_sync_reports_the_partitions_of_old_and_new_rows_and_no_others",
    ),
    Mutant(
        "A refresh of a partition moves the watermark by windows of another column",
        "databases/sync.py",
        "        if self._plan.by_partition:\n            return Advance(old, pending, False)\n",
        "        if self._plan.by_partition:\n            return Advance(highest.value, pending, False)\n",
        "test_partition_column.py::test_a_refresh_never_moves_the_watermark",
    ),
    Mutant(
        "A refresh of a partition reads by the identifier",
        "databases/plan.py",
        "return self.container.along_axis if self.by_partition else self.container",
        "return self.container",
        "test_partition_column.py::test_a_refresh_replaces_the_rows_of_a_partition_and_no_others",
    ),
    Mutant(
        "Row security hides rows, and no message says so",
        "databases/postgres/settings.py",
        'RowSecurity.REFUSE: "off"',
        'RowSecurity.REFUSE: "on"',
        "test_row_security.py::test_policies_between_two_syncs_take_no_row_away",
    ),
    Mutant(
        "A file that becomes a link while it is read brings another file of this machine into the lake",
        "files/beneath.py",
        "flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "flags = os.O_RDONLY | os.O_CLOEXEC",
        "test_files_links.py::test_what_becomes_a_link_before_it_is_opened_is_not_followed",
    ),
    Mutant(
        "A scan of few rows passes NaN, which a scan of many reports",
        "quality/local_conditions.py",
        "return pc.or_(of(column, constant), pc.is_nan(column)) if above else of(column, constant)",
        "return of(column, constant)",
        "test_local_conditions.py::test_this_process_marks_the_rows_that_spark_marks",
    ),
    Mutant(
        "The rows of a file that has changed take the place of the whole table",
        "delta/local_write.py",
        "return _Chosen(compared.new, of_files(write_batch.files), compared.old.num_rows)",
        "return _Chosen(compared.new, is_all=True)",
        "test_files.py::test_small_csv_files_are_synced_without_spark",
    ),
    Mutant(
        "A column that has taken another one's name is read under it",
        "databases/column_numbers.py",
        "        if was is not None and was.lower() != name.lower():\n",
        "        if False:\n",
        "test_renamed_columns.py::test_a_column_that_takes_another_name_loads_anew",
    ),
    Mutant(
        "The rows of tables that inherit from a table are read with it, and nobody has said so",
        "databases/source_checks.py",
        "    if container.inherited is None:\n",
        "    if False:\n",
        "test_inheritance.py::test_a_table_that_others_inherit_from_is_refused_until_the_yaml_says_how",
    ),
    Mutant(
        "A line that ends within quotes is a row",
        "files/readers/quoting.py",
        "        if self.quote and (is_open or self.quote.encode() in data):\n",
        "        if False:\n",
        "test_csv_rows.py::test_csv_is_read_as_it_was_written",
    ),
)


def outcome(mutant: Mutant, environment: dict[str, str]) -> str:
    """``found``, if the mutant's test fails with the fault and only with it; else what is wrong, in words."""
    if not run(mutant, environment):
        return "NOT FOUND"
    return "FAILS WITHOUT THE FAULT, TOO" if run(replace(mutant, new=mutant.old), environment) else "found"


def run(mutant: Mutant, environment: dict[str, str]) -> bool:
    """Whether the mutant's test fails."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        for each in COPIED:
            source = ROOT / each
            if source.is_dir():
                shutil.copytree(source, copy / each, ignore=shutil.ignore_patterns("__pycache__", "images"))
            else:
                shutil.copy(source, copy / each)
        for each in LINKED:
            if (ROOT / each).exists():
                (copy / each).symlink_to((ROOT / each).resolve())
        file = copy / "incremental_assets" / mutant.file
        before = file.read_text(encoding="utf-8")
        assert before.count(mutant.old) == 1, f"{mutant.file} does not have this text once:\n{mutant.old}"
        file.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
        test_file, _, test = mutant.test.partition("::")
        chosen = f"{file_named(test_file).relative_to(ROOT)}::{test}"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long and not s3", chosen]
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{mutant.test} did not run:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.returncode == 1 and " failed" in done.stdout.splitlines()[-1]


def main(words: Sequence[str]) -> int:
    """Runs the mutants one after another beside one Spark server, and names those that their tests have not found."""
    chosen = [one for one in MUTANTS if not words or any(word.lower() in one.fault.lower() for word in words)]
    small_spark()
    unfound: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        try:
            environment = {**os.environ, "SPARK_REMOTE": ensure_server(Path(name))}
            with in_use(Path(name)):  # who reaches it by SPARK_REMOTE does not keep it from ending as idle
                for mutant in chosen:
                    said = outcome(mutant, environment)
                    print(f"{said}: {mutant.fault} ({mutant.test})", flush=True)
                    unfound += [] if said == "found" else [mutant]
        finally:
            stop_server(Path(name))
    print(f"{len(chosen) - len(unfound)} of {len(chosen)} faults were found")
    return 1 if unfound or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
