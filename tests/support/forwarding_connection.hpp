#pragma once

#include <rowlock/sql/connection.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace support {

/// Forwards all calls except posted statements: a base for connections that intercept or falsify.
class forwarding_connection : public rowlock::sql::connection {
public:
    explicit forwarding_connection(std::unique_ptr<rowlock::sql::connection> inner)
        : inner_{std::move(inner)} {}

    [[nodiscard]] rowlock::sql::dialect speaks() const noexcept override {
        return inner_->speaks();
    }
    rowlock::sql::result execute(const rowlock::sql::statement& what,
                                 std::span<const rowlock::sql::value> parameters,
                                 rowlock::sql::deadline until) override {
        return inner_->execute(what, parameters, until);
    }
    rowlock::sql::result query(std::string_view text, rowlock::sql::deadline until) override {
        return inner_->query(text, until);
    }
    std::optional<bool> transact(std::span<const rowlock::sql::step> steps,
                                 std::string_view afterwards,
                                 rowlock::sql::deadline until) override {
        return inner_->transact(steps, afterwards, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] bool keeps_session_state() const noexcept override {
        return inner_->keeps_session_state();
    }
    [[nodiscard]] rowlock::sql::transaction_state transaction() const noexcept override {
        return inner_->transaction();
    }
    [[nodiscard]] int socket() const noexcept override { return inner_->socket(); }
    [[nodiscard]] rowlock::sql::notifications* notifications() noexcept override {
        return inner_->notifications();
    }
    [[nodiscard]] std::int64_t announced_process() const noexcept override {
        return inner_->announced_process();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

protected:
    std::unique_ptr<rowlock::sql::connection> inner_;
};

}  // namespace support
