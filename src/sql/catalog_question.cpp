#include "sql/catalog_question.hpp"

#include "sql/identifier.hpp"

#include <cstddef>

namespace rowlock::sql {

catalog_question::catalog_question(std::string_view name)
    : by_dialect_{load_statement(dialect::postgresql, name), load_statement(dialect::mysql, name),
                  load_statement(dialect::sqlite, name)} {}

result catalog_question::ask(connection& db, std::string_view table, deadline until) const {
    const auto& statement = by_dialect_.at(static_cast<std::size_t>(db.speaks()));
    if (db.speaks() == dialect::postgresql) {
        const auto quoted = quoted_table(db.speaks(), table);
        return db.execute(statement, std::array{value{quoted}}, until);
    }
    const auto dot = table.find('.');
    const bool bare = dot == std::string_view::npos;
    const std::array both{bare ? value{} : value{table.substr(0, dot)},
                          value{bare ? table : table.substr(dot + 1)}};
    return db.execute(statement, both, until);
}

}  // namespace rowlock::sql
