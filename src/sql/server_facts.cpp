#include "sql/server_facts.hpp"

namespace rowlock::sql {
namespace {

server_facts ask(connection& db, deadline until) {
    server_facts facts;
    if (db.speaks() != dialect::mysql) return facts;
    const auto rows = db.query(
        "show global variables where variable_name in ('version', 'wsrep_on', 'wsrep_provider')",
        until);
    bool on = false;
    bool provided = false;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto name = rows.text(row, 0);
        const auto value = rows.text(row, 1);
        if (name == "version") facts.mariadb = value.find("MariaDB") != std::string_view::npos;
        if (name == "wsrep_on") on = value == "ON";
        if (name == "wsrep_provider") provided = !value.empty() && value != "none";
    }
    facts.galera = on && provided;
    return facts;
}

}  // namespace

const server_facts& facts_of(connection& db, deadline until) {
    if (!db.facts_) db.facts_ = std::make_shared<const server_facts>(ask(db, until));
    return *db.facts_;
}

}  // namespace rowlock::sql
