#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/progress_line.hpp"
#include <rowlock/migrations.hpp>

#include <fmt/format.h>

#include <utility>

namespace rowlock::cli {
namespace {

const char* name_of(history_recording now) {
    switch (now) {
        case history_recording::absent:
            return "absent";
        case history_recording::stopped:
            return "stopped";
        case history_recording::on:
            return "on";
    }
    return "absent";
}

std::pair<sql::dialect, sql::table_names> what_to_print(const migrate_options& options) {
    if (options.dialect) {
        return {dialect_named(*options.dialect), names_without_url(options.database)};
    }
    const database in = find_database(options.database);
    return {in.source.speaks(), in.source.tables()};
}

int print_script(const migrate_options& options) {
    const auto [dialect, names] = what_to_print(options);
    if (options.history.empty()) {
        print(migration_script(dialect, names));
    } else if (options.history == "on") {
        print(history_script(dialect, names));
    } else {
        throw failure{usage, "--print goes with --history on"};
    }
    return success;
}

int print_status(const migrate_options& options) {
    const database in = find_database(options.database);
    const migration_status now = schema_status(in.source);
    const auto history = now.version == 0 ? history_recording::absent : history_status(in.source);
    if (options.json) {
        print_json(json{{"version", now.version},
                        {"latest", now.latest},
                        {"current", now.current()},
                        {"history", name_of(history)}});
    } else {
        print(fmt::format("version {} of {}{}\n", now.version, now.latest,
                          !now.current()             ? ": run `rowlock migrate`"
                          : now.version > now.latest ? ", made by a later rowlock: this one works "
                                                       "with it"
                                                     : ""));
        if (history != history_recording::absent) {
            print(fmt::format("history {}\n", name_of(history)));
        }
    }
    return now.current() ? success : answer_is_no;
}

void confirm_loss(const database& in) {
    require_consent(
        fmt::format("This removes tables, with all locks in them, from {}. Go on? [y/N] ",
                    escaped(description_of(in))),
        "--down-to removes tables with all locks in them: give --yes");
}

int switch_history(const migrate_options& options) {
    const database in = find_database(options.database);
    if (in.embedded) rowlock::migrate(in.source);
    if (options.history == "drop") {
        if (!options.yes) {
            require_consent(fmt::format("This removes what was recorded in {}. Go on? [y/N] ",
                                        escaped(description_of(in))),
                            "--history drop removes what was recorded: give --yes");
        }
        drop_history(in.source);
    } else {
        record_history(in.source, options.history == "on");
    }
    const auto now = history_status(in.source);
    if (options.json) {
        print_json(json{{"history", name_of(now)}});
    } else {
        print(fmt::format("history {}\n", name_of(now)));
    }
    return success;
}

}  // namespace

sql::dialect dialect_named(const std::string& name) {
    if (name == "postgresql") return sql::dialect::postgresql;
    if (name == "mysql" || name == "mariadb") return sql::dialect::mysql;
    if (name == "sqlite") return sql::dialect::sqlite;
    throw failure{usage, "--dialect takes postgresql, mysql or sqlite"};
}

int migrate(const migrate_options& options) {
    if (options.grants_for) return print_grants(options);
    if (options.print) return print_script(options);
    if (options.dialect) throw failure{usage, "--dialect goes with --print or --print-grants"};
    if (options.status) return print_status(options);
    if (!options.history.empty()) return switch_history(options);
    const database in = find_database(options.database,
                                      options.down_to ? missing_file::refused : missing_file::made);
    if (options.down_to) {
        const int now = schema_status(in.source).version;
        if (now < *options.down_to) {
            throw failure{usage, fmt::format("--down-to {}: the tables are of version {} only",
                                             *options.down_to, now)};
        }
        if (!options.yes) confirm_loss(in);
    }
    const auto steps = [&] {
        progress_line progress{"waiting for the database"};
        const auto on_step = [&](int version) {
            progress.set(fmt::format("{} migration {}", options.down_to ? "reverting" : "applying",
                                     version));
        };
        return rowlock::migrate(in.source, {.on_step = on_step}, options.down_to.value_or(-1));
    }();
    if (options.json) {
        print_json(json{{"direction", options.down_to ? "down" : "up"}, {"steps", steps}});
    } else if (steps.empty()) {
        print("nothing to do\n");
    }
    if (options.json) return success;
    for (const int version : steps) {
        print(fmt::format("{} migration {}\n", options.down_to ? "reverted" : "applied", version));
    }
    return success;
}

}  // namespace rowlock::cli
