#include "sql/server_facts.hpp"

#include "sql/connection_memory.hpp"

namespace rowlock::sql {
namespace {

/// All nodes of a Galera cluster know the same transactions.
std::string cluster_of(connection& db, deadline until) {
    const auto row =
        db.query("show global status where variable_name = 'wsrep_cluster_state_uuid'", until);
    const std::string_view uuid = row.empty() ? std::string_view{} : row.text(0, 1);
    if (uuid.find_first_not_of("0-") == std::string_view::npos) {
        throw error{errc::database_unreachable,
                    "this Galera node is in no cluster (yet): wait until it has joined, or connect "
                    "to another"};
    }
    return "galera:" + std::string{uuid};
}

server_facts ask(connection& db, deadline until) {
    server_facts facts;
    if (db.speaks() != dialect::mysql) return facts;
    const auto rows = db.query(
        "show global variables where variable_name in ('version', 'wsrep_on', 'wsrep_provider', "
        "'server_uuid', 'server_uid', 'server_id', 'innodb_rollback_on_timeout')",
        until);
    bool on = false;
    bool provided = false;
    std::string unique;  // MySQL: server_uuid; MariaDB: server_uid, where it is new enough
    std::string id;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto name = rows.text(row, 0);
        const auto value = rows.text(row, 1);
        if (name == "version") facts.mariadb = value.find("MariaDB") != std::string_view::npos;
        if (name == "innodb_rollback_on_timeout") facts.rolls_back_on_timeout = value == "ON";
        if (name == "wsrep_on") on = value == "ON";
        if (name == "wsrep_provider") provided = !value.empty() && value != "none";
        if (name == "server_uuid" || name == "server_uid") unique = value;
        if (name == "server_id") id = value;
    }
    facts.galera = on && provided;
    if (facts.galera) {
        facts.server = cluster_of(db, until);
    } else if (!id.empty()) {
        // The statements compare what is behind the last colon (fragment `here`).
        facts.server = (facts.mariadb ? "mariadb:" : "mysql:") + unique + ":" + id;
    }
    return facts;
}

}  // namespace

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

}  // namespace rowlock::sql
