#include "sql/server_facts.hpp"

#include "sql/connection_memory.hpp"

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
    auto& facts = memory_of(db).facts;
    if (!facts) facts = ask(db, until);
    return *facts;
}

bool runs_compounds(connection& db, deadline until) {
    return db.runs_compounds() && !memory_of(db).refuses_compounds && facts_of(db, until).mariadb;
}

bool refused_compound(connection& db, const error& failure) {
    constexpr int syntax_error = 1064;
    constexpr int not_to_be_prepared = 1295;
    const int code = failure.native_code();
    if (!db.alive() || (code != syntax_error && code != not_to_be_prepared)) return false;
    memory_of(db).refuses_compounds = true;
    return true;
}

}  // namespace rowlock::sql
