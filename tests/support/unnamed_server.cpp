#include "support/unnamed_server.hpp"

#include <rowlock/sql/forwarding_connection.hpp>

#include <memory>
#include <string_view>
#include <utility>

namespace support {
namespace {

using namespace rowlock;

class unnamed_connection final : public sql::forwarding_connection {
public:
    using forwarding_connection::forwarding_connection;

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        const std::string_view text = what.text();
        auto answer = inner().execute(what, parameters, until);
        // The server's identity is in the first column of one row.
        const bool names = text.starts_with("/* rowlock session_setup */") ||
                           text.starts_with("/* rowlock server_");
        return names ? without_name(answer) : std::move(answer);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        auto answer = inner().query(text, until);
        if (!asks_for_facts(text)) return answer;
        sql::result rest{2};
        for (std::size_t row = 0; row < answer.rows(); ++row) {
            if (answer.text(row, 0).starts_with("server_")) continue;
            rest.append_text(answer.text(row, 0));
            rest.append_text(answer.text(row, 1));
        }
        return rest;
    }

private:
    static sql::result without_name(const sql::result& told) {
        sql::result rest{told.columns()};
        for (std::size_t column = 0; column < told.columns(); ++column) {
            rest.append_text(column == 0 ? std::string_view{} : told.text(0, column));
        }
        return rest;
    }
};

}  // namespace

sql::connection_source unnamed(const sql::connection_source& inner) {
    return sql::connection_source{
        inner.speaks(),
        [inner](sql::deadline until) -> std::unique_ptr<sql::connection> {
            return std::make_unique<unnamed_connection>(inner.connect(until));
        },
        inner.description()}
        .with_tables(inner.tables());
}

}  // namespace support
