#include "schema/catalog.hpp"
#include "schema/migrator.hpp"
#include "schema/script.hpp"
#include "sql/session_settings.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>

namespace rowlock {
namespace {

std::unique_ptr<sql::connection> connect(const sql::connection_source& source,
                                         const migration_options& options) {
    schema::validate(options);
    return sql::connect_stated(source, std::chrono::steady_clock::now() + options.wait);
}

error with_advice(const error& failure) {
    switch (failure.kind()) {
        case errc::access_denied:
            return schema::explained(failure, "",
                                     "; a migration needs the right to create tables: run it as "
                                     "their owner, or give a DBA the output of `rowlock migrate "
                                     "--print`");
        case errc::outcome_unknown:
            return schema::explained(
                failure, "", "; migrate again: it sees how far this run came and goes on there");
        default:
            return failure;
    }
}

/// No rows if the table is missing.
std::vector<schema::recorded_migration> read_record(sql::connection& connection,
                                                    const sql::table_names& tables,
                                                    sql::deadline until) {
    try {
        return schema::read_record(connection, tables, until);
    } catch (const error& failure) {
        if (failure.kind() == errc::schema_outdated) return {};
        if (failure.kind() != errc::access_denied) throw;
        throw schema::explained(failure, "",
                                "; the rights that rowlock needs are in docs/migrations.md");
    }
}

void switch_history(const sql::connection_source& source, const migration_options& options,
                    history_recording wanted) {
    const auto connection = connect(source, options);
    try {
        schema::migrator{*connection, schema::library_catalog(source.speaks()), source.tables(),
                         options}
            .switch_history(wanted);
    } catch (const error& failure) {
        throw with_advice(failure);
    }
}

/// For the mysql tool, which would end a trigger's body at its first semicolon.
std::string with_delimiters(std::string_view script) {
    std::string text{"delimiter //\n"};
    for (const auto& statement : schema::split_statements(script, sql::dialect::mysql)) {
        text.append(statement).append("\n//\n");
    }
    return text + "delimiter ;\n";
}

std::string place(const sql::table_names& tables) {
    std::string text = "with the prefix " + tables.prefix;
    if (!tables.schema.empty()) text += " in the schema " + tables.schema;
    return text;
}

}  // namespace

std::vector<int> migrate(const sql::connection_source& source, const migration_options& options,
                         int target) {
    const schema::catalog& known = schema::library_catalog(source.speaks());
    if (target < -1 || target > known.latest()) {
        throw error{errc::invalid_options, "the target of a migration must be 0 to " +
                                               std::to_string(known.latest()) +
                                               ", or -1 for the latest"};
    }
    const auto connection = connect(source, options);
    try {
        return schema::migrator{*connection, known, source.tables(), options}.move_to(
            target == -1 ? std::nullopt : std::optional{target});
    } catch (const error& failure) {
        throw with_advice(failure);
    }
}

migration_status schema_status(const sql::connection_source& source,
                               const migration_options& options) {
    const schema::catalog& known = schema::library_catalog(source.speaks());
    const auto connection = connect(source, options);
    return {.version = schema::migrator{*connection, known, source.tables(), options}.version(),
            .latest = known.latest()};
}

void require_current_schema(sql::connection& connection, const sql::table_names& tables,
                            sql::deadline until) {
    const schema::catalog& known = schema::library_catalog(connection.speaks());
    const int version = schema::verified_version(read_record(connection, tables, until), known);
    if (version >= known.latest()) return;
    if (version == 0) {
        throw error{errc::schema_outdated,
                    "no rowlock tables " + place(tables) + ": run `rowlock migrate`"};
    }
    throw error{errc::schema_outdated, "the tables " + place(tables) + " are at migration " +
                                           std::to_string(version) + ", this rowlock needs " +
                                           std::to_string(known.latest()) +
                                           ": run `rowlock migrate`"};
}

void record_history(const sql::connection_source& source, bool on,
                    const migration_options& options) {
    switch_history(source, options, on ? history_recording::on : history_recording::stopped);
}

void drop_history(const sql::connection_source& source, const migration_options& options) {
    switch_history(source, options, history_recording::absent);
}

history_recording history_status(const sql::connection_source& source,
                                 const migration_options& options) {
    const auto connection = connect(source, options);
    return schema::migrator{*connection, schema::library_catalog(source.speaks()), source.tables(),
                            options}
        .history();
}

std::string history_script(sql::dialect dialect, const sql::table_names& tables) {
    const std::string script = sql::qualify(schema::history_file(dialect, "on"), dialect, tables);
    if (dialect == sql::dialect::mysql) return with_delimiters(script);
    return std::string{dialect == sql::dialect::postgresql ? "begin;\n" : "begin immediate;\n"} +
           script + "commit;\n";
}

std::string migration_script(sql::dialect dialect, const sql::table_names& tables) {
    sql::validate_names(dialect, tables);
    const schema::catalog& known = schema::library_catalog(dialect);
    std::string script = "-- The tables of rowlock, up to " + known.at(known.latest()).title() +
                         ", for an empty database.\n\n";
    if (dialect == sql::dialect::postgresql) script += "begin;\n";
    if (dialect == sql::dialect::sqlite) script += "begin immediate;\n";
    if (!tables.schema.empty()) {
        script +=
            "-- Needs the right to create schemas, even if this one exists: leave it out then.\n"
            "create schema if not exists \"" +
            tables.schema + "\";\n";
    }
    const auto append = [&](std::string_view text) {
        script.append("\n").append(sql::qualify(text, dialect, tables));
    };
    append(known.record.up);
    for (const auto& step : known.numbered) {
        append(step.up);
        append(schema::record_statement(step, dialect) + ";\n");
    }
    if (dialect != sql::dialect::mysql) script += "\ncommit;\n";
    return script;
}

}  // namespace rowlock
