#pragma once

#include <rowlock/election.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/multi_lease.hpp>
#include <rowlock/periodic_run.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <stop_token>
#include <utility>
#include <variant>
#include <vector>

namespace rowlock::cli {

/// What a command runs under: a lease or several, a periodic run, leadership, a shared_mutex, or
/// permits of a semaphore.
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
        return std::visit([](const auto& held) { return kept_by(held).remaining(); }, held_);
    }
    [[nodiscard]] std::stop_token lost() const {
        return std::visit([](const auto& held) { return kept_by(held).lost(); }, held_);
    }
    [[nodiscard]] std::stop_token release_requested() const {
        return std::visit([](const auto& held) { return kept_by(held).release_requested(); },
                          held_);
    }
    /// @param succeeded whether the command did: a periodic run has finished then
    void release(bool succeeded) {
        std::visit([&](auto& held) { end(held, succeeded); }, held_);
    }

private:
    template <typename Hold>
    static const Hold& first_of(const Hold& held) {
        return held;
    }
    static const lease& first_of(const multi_lease& held) { return held.leases().front(); }
    static const lease& first_of(const periodic_run& held) { return held.lease(); }
    static const lease& first_of(const leadership& held) { return held.lease(); }

    /// What has the trust of the hold.
    template <typename Hold>
    static const Hold& kept_by(const Hold& held) {
        return held;
    }
    static const lease& kept_by(const periodic_run& held) { return held.lease(); }
    static const lease& kept_by(const leadership& held) { return held.lease(); }

    template <typename Hold>
    static void end(Hold& held, bool /*succeeded*/) {
        held.release();
    }
    static void end(leadership& held, bool /*succeeded*/) { held.step_down(); }
    static void end(periodic_run& held, bool succeeded) {
        succeeded ? held.finish() : held.abandon();
    }

    std::variant<lease, multi_lease, periodic_run, leadership, mode_lease, permits> held_;
};

}  // namespace rowlock::cli
