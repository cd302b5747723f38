#pragma once

#include <rowlock/lease.hpp>
#include <rowlock/multi_lease.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <stop_token>
#include <utility>
#include <variant>
#include <vector>

namespace rowlock::cli {

/// What a command of `rowlock run` runs under: a lease or several, a shared_mutex, or permits of a
/// semaphore.
class command_hold {
public:
    template <typename Hold>
    explicit command_hold(Hold held) : held_{std::move(held)} {}

    /// One for each lock, in byte order of the names.
    [[nodiscard]] std::vector<fencing_token> tokens() const {
        std::vector<fencing_token> all;
        if (const auto* const several = std::get_if<multi_lease>(&held_)) {
            for (const auto& each : several->leases()) all.push_back(each.token());
        } else {
            std::visit([&](const auto& held) { all.push_back(first_of(held).token()); }, held_);
        }
        return all;
    }
    [[nodiscard]] rowlock::session_id session_id() const {
        return std::visit([](const auto& held) { return first_of(held).session_id(); }, held_);
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
    template <typename Hold>
    static const Hold& first_of(const Hold& held) {
        return held;
    }
    static const lease& first_of(const multi_lease& held) { return held.leases().front(); }

    std::variant<lease, multi_lease, mode_lease, permits> held_;
};

}  // namespace rowlock::cli
