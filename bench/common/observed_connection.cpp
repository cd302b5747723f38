#include "common/observed_connection.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace bench {
namespace {

namespace sql = rowlock::sql;

class observed_connection final : public sql::connection {
public:
    observed_connection(std::unique_ptr<sql::connection> inner, observer by)
        : inner_{std::move(inner)}, by_{std::move(by)} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return by_([&] { return inner_->execute(what, parameters, until); });
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return by_([&] { return inner_->query(text, until); });
    }
    std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                 sql::deadline until) override {
        std::optional<bool> committed;
        (void)by_([&] {
            committed = inner_->transact(steps, afterwards, until);
            return sql::result{};
        });
        return committed;
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] bool keeps_session_state() const noexcept override {
        return inner_->keeps_session_state();
    }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return inner_->transaction();
    }
    [[nodiscard]] int socket() const noexcept override { return inner_->socket(); }
    [[nodiscard]] sql::notifications* notifications() noexcept override {
        return inner_->notifications();
    }
    [[nodiscard]] std::int64_t announced_process() const noexcept override {
        return inner_->announced_process();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::unique_ptr<sql::connection> inner_;
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
