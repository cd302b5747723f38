#pragma once

#include <rowlock/lease.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <stop_token>
#include <utility>
#include <variant>

namespace rowlock::cli {

/// What a command of `rowlock run` runs under: a lease, a shared_mutex, or permits of a semaphore.
class command_hold {
public:
    template <typename Hold>
    explicit command_hold(Hold held) : held_{std::move(held)} {}

    [[nodiscard]] fencing_token token() const {
        return std::visit([](const auto& held) { return held.token(); }, held_);
    }
    [[nodiscard]] rowlock::session_id session_id() const {
        return std::visit([](const auto& held) { return held.session_id(); }, held_);
    }
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept {
        return std::visit([](const auto& held) { return held.remaining(); }, held_);
    }
    [[nodiscard]] std::stop_token lost() const {
        return std::visit([](const auto& held) { return held.lost(); }, held_);
    }
    void release() {
        std::visit([](auto& held) { held.release(); }, held_);
    }

private:
    std::variant<lease, mode_lease, permits> held_;
};

}  // namespace rowlock::cli
