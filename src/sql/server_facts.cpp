#include "sql/server_facts.hpp"

#include "sql/connection_memory.hpp"
#include "sql/group_membership.hpp"

namespace rowlock::sql {
namespace {

/// SHOW would be cut by sql_select_limit. MariaDB reads what follows /*M!, MySQL what follows
/// /*!80000 and the hint. A caller's handle has settings of the caller's.
constexpr std::string_view variables =
    "/*M! set statement max_join_size = 18446744073709551615 for */ "
    "select /*+ SET_VAR(max_join_size = 18446744073709551615) */ lower(variable_name), "
    "variable_value "
    "from /*M! information_schema. */ /*!80000 performance_schema. */ global_variables "
    "where variable_name in ('version', 'wsrep_on', 'wsrep_provider', 'server_uuid', "
    "'server_uid', 'server_id', 'innodb_rollback_on_timeout', 'innodb_snapshot_isolation', "
    "'group_replication_group_name') limit 100";

[[noreturn]] void refuse(connection& db, const std::string& why) {
    db.discard();  // the next connection may lead to another server
    throw error{errc::database_unreachable, why};
}

/// All nodes of a Galera cluster know the same transactions.
std::string cluster_of(connection& db, deadline until) {
    const auto row =
        db.query("show global status where variable_name = 'wsrep_cluster_state_uuid'", until);
    const std::string_view uuid = row.empty() ? std::string_view{} : row.text(0, 1);
    if (uuid.find_first_not_of("0-") == std::string_view::npos) {
        refuse(db,
               "this Galera node is in no cluster (yet): wait until it has joined, or connect to "
               "another");
    }
    return "galera:" + std::string{uuid};
}

result ask_membership(connection& db, deadline until) {
    try {
        return db.query(group_membership, until);
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
        throw error{errc::access_denied, std::string{no_right_to_membership}};
    }
}

/// Distinguishes the group that this server is in from others of its name.
std::string foundation_of(connection& db, deadline until) {
    const auto row = ask_membership(db, until);
    if (const auto why = why_outside_group(row.text(0, 0), row.integer(0, 1), row.integer(0, 2));
        !why.empty()) {
        refuse(db, why);
    }
    return std::string{row.text(0, 3)};
}

server_facts ask(connection& db, deadline until) {
    server_facts facts;
    if (db.speaks() != dialect::mysql) return facts;
    const auto rows = db.query(variables, until);
    bool on = false;
    bool provided = false;
    std::string unique;  // MySQL: server_uuid; MariaDB: server_uid, where it is new enough
    std::string id;
    std::string group;  // set if the plugin is there and configured, whether it runs or not
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto name = rows.text(row, 0);
        const auto value = rows.text(row, 1);
        if (name == "version") facts.mariadb = value.find("MariaDB") != std::string_view::npos;
        if (name == "innodb_rollback_on_timeout") facts.rolls_back_on_timeout = value == "ON";
        if (name == "innodb_snapshot_isolation") facts.isolates_snapshots = true;
        if (name == "wsrep_on") on = value == "ON";
        if (name == "wsrep_provider") provided = !value.empty() && value != "none";
        if (name == "server_uuid" || name == "server_uid") unique = value;
        if (name == "server_id") id = value;
        if (name == "group_replication_group_name") group = value;
    }
    if (on && provided) {
        facts.member_of = cluster::galera;
        facts.server = cluster_of(db, until);
    } else if (!group.empty()) {
        facts.member_of = cluster::group;
        facts.server = "group:" + group + ":" + foundation_of(db, until);
    } else if (!id.empty()) {
        // The statements compare what follows the last colon (fragment `here`).
        facts.server = (facts.mariadb ? "mariadb:" : "mysql:") + unique + ":" + id;
    }
    return facts;
}

}  // namespace

const char* to_string(cluster which) {
    switch (which) {
        case cluster::none:
            return "single server";
        case cluster::galera:
            return "Galera node";
        case cluster::group:
            return "member of a MySQL group";
    }
    return "?";
}

const server_facts& facts_of(connection& db, deadline until) {
    auto& facts = memory_of(db).facts;
    if (!facts) facts = ask(db, until);
    return *facts;
}

const server_facts& ask_facts_again(connection& db, deadline until) {
    auto& facts = memory_of(db).facts;
    facts = ask(db, until);
    return *facts;
}

void require_membership(connection& db, deadline until) {
    if (db.speaks() != dialect::mysql) return;
    const auto& known = facts_of(db, until);
    if (known.member_of != cluster::group) return;
    if (known.server.ends_with(":" + foundation_of(db, until))) return;
    refuse(db, "this MySQL group was founded anew: all leases are lost; try again");
}

}  // namespace rowlock::sql
