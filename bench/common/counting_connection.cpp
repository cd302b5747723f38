#include "common/counting_connection.hpp"

#include <memory>
#include <utility>

namespace bench {
namespace {

namespace sql = rowlock::sql;

class counting_connection final : public sql::connection {
public:
    counting_connection(std::unique_ptr<sql::connection> inner,
                        std::atomic<std::uint64_t>& statements)
        : inner_{std::move(inner)}, statements_{statements} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        ++statements_;
        return inner_->execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        ++statements_;
        return inner_->query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] bool runs_compounds() const noexcept override { return inner_->runs_compounds(); }
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
    std::atomic<std::uint64_t>& statements_;
};

}  // namespace

sql::connection_source counted(sql::connection_source inner,
                               std::atomic<std::uint64_t>& statements) {
    const auto dialect = inner.speaks();
    auto description = inner.description();
    return {dialect,
            [inner = std::move(inner), &statements](sql::deadline until) {
                return std::make_unique<counting_connection>(inner.connect(until), statements);
            },
            std::move(description)};
}

}  // namespace bench
