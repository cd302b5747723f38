#include "cli/commands.hpp"
#include "cli/json.hpp"

#include <fmt/format.h>

namespace rowlock::cli {
namespace {

int print_script(const migrate_options& options) {
    const migration_options tables{.schema = options.database.schema,
                                   .prefix = options.database.prefix};
    const auto dialect = options.dialect ? dialect_named(*options.dialect)
                                         : find_database(options.database).source.speaks();
    print(migration_script(dialect, tables));
    return success;
}

int print_status(const migrate_options& options) {
    const database in = find_database(options.database);
    const migration_status now = schema_status(in.source, in.tables);
    if (options.json) {
        print_json(
            json{{"version", now.version}, {"latest", now.latest}, {"current", now.current()}});
    } else {
        print(fmt::format("version {} of {}{}\n", now.version, now.latest,
                          now.current() ? "" : ": run `rowlock migrate`"));
    }
    return now.current() ? success : answer_is_no;
}

void confirm_loss(const database& in) {
    require_consent(
        fmt::format("This removes tables, with all locks in them, from {}. Go on? [y/N] ",
                    escaped(in.source.description())),
        "--down-to removes tables with all locks in them: give --yes");
}

}  // namespace

sql::dialect dialect_named(const std::string& name) {
    if (name == "postgresql") return sql::dialect::postgresql;
    if (name == "mysql" || name == "mariadb") return sql::dialect::mysql;
    if (name == "sqlite") return sql::dialect::sqlite;
    throw failure{usage, "--dialect takes postgresql, mysql or sqlite"};
}

int migrate(const migrate_options& options) {
    if (options.print) return print_script(options);
    if (options.dialect) throw failure{usage, "--dialect goes with --print"};
    if (options.status) return print_status(options);
    const database in = find_database(options.database,
                                      options.down_to ? missing_file::refused : missing_file::made);
    if (options.down_to && !options.yes) confirm_loss(in);
    const auto steps = rowlock::migrate(in.source, in.tables, options.down_to.value_or(-1));
    if (options.json) {
        print_json(json{{"direction", options.down_to ? "down" : "up"}, {"steps", steps}});
    } else if (steps.empty()) {
        print("nothing to do\n");
    }
    if (options.json) return success;
    for (const int version : steps) {
        print(fmt::format("{} migration {}\n", options.down_to ? "took back" : "applied", version));
    }
    return success;
}

}  // namespace rowlock::cli
