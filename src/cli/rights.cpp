// The rights of a client, and `rowlock migrate --print-grants`.

#include "cli/rights.hpp"

#include "cli/commands.hpp"
#include "cli/text.hpp"
#include "sql/session_settings.hpp"
#include "sql/table_names.hpp"
#include <rowlock/migrations.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace rowlock::cli {
namespace {

/// Where the tables are, as far as the database shows.
struct place {
    std::string folder{};  ///< schema of PostgreSQL, database of MySQL; empty: not known
    std::string file{};    ///< of SQLite
    bool records_history = false;
    bool in_group = false;  ///< of MySQL Group Replication
};

std::string quoted_name(std::string_view name, char mark) {
    std::string text(1, mark);
    for (const char c : name) {
        if (c == mark || (c == '\\' && mark == '\'')) text += c;
        text += c;
    }
    return text + mark;
}

/// USER or USER@HOST, as MySQL names accounts.
std::string mysql_account(const std::string& role) {
    const auto at = role.rfind('@');
    const std::string host = at == std::string::npos ? "%" : role.substr(at + 1);
    return quoted_name(role.substr(0, at), '\'') + "@" + quoted_name(host, '\'');
}

void require_printable(const std::string& role) {
    const bool clean = !role.empty() && std::ranges::none_of(role, [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    if (!clean) throw failure{usage, "--print-grants takes the name of a role"};
}

place ask(const database& in) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{5};
    place found{.folder = in.source.tables().schema, .file = in.source.description()};
    if (in.source.speaks() == sql::dialect::sqlite) return found;
    const bool postgresql = in.source.speaks() == sql::dialect::postgresql;
    const auto db = sql::connect_stated(in.source, until);
    if (found.folder.empty()) {
        const auto table = in.source.tables().prefix + "session";
        const auto row =
            db->query(postgresql ? "select coalesce((select n.nspname from pg_catalog.pg_class c "
                                   "join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) "
                                   "c.relnamespace where c.oid operator(pg_catalog.=) "
                                   "pg_catalog.to_regclass('" +
                                       table + "')), pg_catalog.current_schema())"
                                 : std::string{"select database()"},
                      until);
        found.folder = std::string{row.text(0, 0)};
    }
    if (!postgresql) {
        const auto group = db->query(
            "show global variables where variable_name = 'group_replication_group_name'", until);
        found.in_group = !group.empty() && !group.text(0, 1).empty();
    }
    found.records_history = history_status(in.source) != history_recording::absent;
    return found;
}

std::string qualified(std::string_view table, const place& at, const sql::table_names& names,
                      char mark) {
    const auto own = names.prefix + std::string{table.substr(std::string_view{"rowlock_"}.size())};
    return at.folder.empty() ? own : quoted_name(at.folder, mark) + "." + own;
}

std::string grants(sql::dialect speaks, const place& at, const sql::table_names& names,
                   const std::string& role, bool read_only) {
    const bool postgresql = speaks == sql::dialect::postgresql;
    const char mark = postgresql ? '"' : '`';
    const std::string to = postgresql ? quoted_name(role, '"') : mysql_account(role);
    std::string text;
    if (postgresql && !at.folder.empty()) {
        text += fmt::format("grant usage on schema {} to {};\n", quoted_name(at.folder, mark), to);
    }
    for (const auto& each : read_only ? rights_of_a_reader(speaks) : rights_of_a_client(speaks)) {
        text += fmt::format("grant {} on {} to {};\n", fmt::join(each.rights, ", "),
                            qualified(each.table, at, names, mark), to);
    }
    if (at.records_history && (postgresql || read_only)) {
        text += fmt::format("grant {} on {} to {};\n", read_only ? "select" : "insert",
                            qualified("rowlock_history", at, names, mark), to);
    }
    if (at.in_group) {
        for (const char* table : {"replication_group_members", "replication_group_member_stats"}) {
            text += fmt::format("grant select on performance_schema.{} to {};\n", table, to);
        }
    }
    return text;
}

}  // namespace

std::vector<table_rights> rights_of_a_client(sql::dialect speaks) {
    // On PostgreSQL locking a row requires the right to change it.
    std::vector<std::string_view> waiter{"select", "insert", "delete"};
    if (speaks == sql::dialect::postgresql) waiter.emplace_back("update");
    return {{"rowlock_session", "owner", {"select", "insert", "update", "delete"}},
            {"rowlock_lock", "name", {"select", "insert", "update", "delete"}},
            {"rowlock_ticket", "name", waiter},
            {"rowlock_hold", "name", {"select", "insert", "update", "delete"}},
            {"rowlock_version", "resource", {"select", "insert", "update"}},
            {"rowlock_run", "name", {"select", "insert", "update"}},
            {"rowlock_barrier", "name", {"select", "insert", "update", "delete"}},
            {"rowlock_party", "name", {"select", "insert", "update", "delete"}},
            {"rowlock_policy", "name", {"select", "insert", "update", "delete"}},
            {"rowlock_quorum", "name", {"select", "insert", "update"}},
            {"rowlock_member", "id", {"select", "insert", "update"}},
            {"rowlock_token_floor", "floor", {"select", "update"}},
            {"rowlock_migration", "version", {"select"}}};
}

std::vector<table_rights> rights_of_a_reader(sql::dialect speaks) {
    auto all = rights_of_a_client(sql::dialect::sqlite);
    for (auto& each : all) each.rights = {"select"};
    const auto session = std::ranges::find(all, "rowlock_session", &table_rights::table);
    // The last two say on PostgreSQL which transaction has locked a row.
    session->rights = {
        speaks == sql::dialect::postgresql
            ? "select (id, owner, host, pid, program, ttl_us, expires_at, ended, beats, revision, "
              "server_identity, opened_at, xmax, tableoid)"
            : "select (id, owner, host, pid, program, ttl_us, expires_at, ended, beats, revision, "
              "server_identity, opened_at)"};
    return all;
}

int print_grants(const migrate_options& options) {
    require_printable(*options.grants_for);
    place at;
    sql::table_names names;
    auto speaks = sql::dialect::sqlite;
    if (options.dialect) {
        speaks = dialect_named(*options.dialect);
        names = names_without_url(options.database);
        sql::validate_names(speaks, names);
        at.folder = names.schema;
    } else {
        const database in = find_database(options.database);
        speaks = in.source.speaks();
        names = in.source.tables();
        at = ask(in);
    }
    if (speaks != sql::dialect::sqlite) {
        print(grants(speaks, at, names, *options.grants_for, options.read_only));
        return success;
    }
    print(fmt::format(
        "-- SQLite has no roles: {} needs to read and write the file {}and the "
        "folder it is in.\n",
        escaped(*options.grants_for), at.file.empty() ? "" : escaped(at.file.substr(7)) + " "));
    return success;
}

}  // namespace rowlock::cli
