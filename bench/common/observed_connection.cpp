#include "common/observed_connection.hpp"

#include <rowlock/sql/forwarding_connection.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace bench {
namespace {

namespace sql = rowlock::sql;

class observed_connection final : public sql::forwarding_connection {
public:
    observed_connection(std::unique_ptr<sql::connection> inner, observer by)
        : forwarding_connection{std::move(inner)}, by_{std::move(by)} {}

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return by_([&] { return inner().execute(what, parameters, until); });
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return by_([&] { return inner().query(text, until); });
    }
    std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                 sql::deadline until) override {
        std::optional<bool> committed;
        (void)by_([&] {
            committed = inner().transact(steps, afterwards, until);
            return sql::result{};
        });
        return committed;
    }
    /// Every statement is sent by execute() instead, and observed there.
    bool post(const sql::statement& /*what*/, std::span<const sql::value> /*parameters*/,
              sql::deadline /*until*/, sql::posted_answer /*told*/) override {
        return false;
    }

private:
    observer by_;
};

}  // namespace

sql::connection_source observed(sql::connection_source inner, observer by) {
    const auto dialect = inner.speaks();
    auto description = inner.description();
    const auto tables = inner.tables();
    return sql::connection_source{
        dialect,
        [inner = std::move(inner), by = std::move(by)](sql::deadline until) {
            return std::make_unique<observed_connection>(inner.connect(until), by);
        },
        std::move(description)}
        .with_tables(tables);
}

sql::connection_source counted(sql::connection_source inner,
                               std::atomic<std::uint64_t>& statements) {
    return observed(std::move(inner), [&statements](const auto& send) {
        ++statements;
        return send();
    });
}

}  // namespace bench
