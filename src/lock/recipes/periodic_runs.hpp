#pragma once

#include "lock/client/engine.hpp"
#include "lock/protocol/run/run_protocol.hpp"
#include <rowlock/periodic_run.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

namespace rowlock::detail {

/// The records of periodic runs, beside the leases under which they run. Thread-safe.
class periodic_runs : public engine_part {
public:
    explicit periodic_runs(engine& of)
        : protocol_{of.context().statements}, retries_{of.retries()} {}

    /// Returns nullopt if a stop was requested.
    [[nodiscard]] std::optional<protocol::run_answer> begin(
        const grant& held, const std::string& period, const periodic_options& options,
        std::chrono::steady_clock::time_point until, const std::stop_token& stop) {
        const protocol::run_request wanted{.name = held.name,
                                           .session = held.session_id,
                                           .token = held.token.value(),
                                           .period = period,
                                           .skip_if_within = options.skip_if_within,
                                           .at_least = options.at_least,
                                           .lock_delay = options.lock_delay};
        return retries_.change(retries_.failure_deadline(until), stop,
                               [&](sql::connection& db, sql::deadline end, auto& change) {
                                   return change([&] { return protocol_.begin(db, wanted, end); });
                               });
    }
    [[nodiscard]] bool finish(const grant& held, const std::string& period) {
        return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
            return change([&] {
                return protocol_.finish(db, held.name, held.session_id, held.token.value(), period,
                                        until);
            });
        });
    }
    [[nodiscard]] std::optional<run_info> inspect(const std::string& name) {
        return retries_.on_connection([&](sql::connection& db, sql::deadline until) {
            return protocol_.inspect(db, name, until);
        });
    }
    /// Returns false if a stop was requested.
    bool pause(nanoseconds time, const std::stop_token& stop) { return retries_.pause(time, stop); }

private:
    const protocol::run_protocol protocol_;
    retry_loop& retries_;
};

}  // namespace rowlock::detail
