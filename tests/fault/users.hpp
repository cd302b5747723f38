#pragma once

#include "stress/history.hpp"
#include <rowlock/client.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace fault {

/// Clients of this process whose threads acquire and release until they are stopped, through all
/// faults of the servers, and record what they held. All times are of CLOCK_BOOTTIME, also those of
/// the database in a history, since some faults affect its clock.
///
/// Each thread takes the names in turn.
class users {
public:
    struct settings {
        std::vector<rowlock::sql::connection_source> sources;  ///< one for each client
        rowlock::client_options options = {};
        int threads = 2;  ///< threads of each client
        int names = 2;
        std::chrono::milliseconds hold{3};
        std::chrono::milliseconds limit{5000};  ///< of each acquisition
    };
    explicit users(settings how);
    users(const users&) = delete;
    users& operator=(const users&) = delete;
    ~users();

    /// Grants so far.
    [[nodiscard]] int grants() const noexcept { return grants_; }
    /// Waits for that many more grants. False after `limit`.
    [[nodiscard]] bool go_on(int more, std::chrono::milliseconds limit) const;
    /// The time of the first grant that was requested after `from`; 0 without one.
    [[nodiscard]] stress::micros first_since(stress::micros from) const;
    struct failures_of_a_kind {
        int times = 0;
        std::string first{};  ///< which call, after what time, and what it said
    };
    /// What calls threw, by the message of its kind.
    [[nodiscard]] std::map<std::string, failures_of_a_kind> failures() const;
    [[nodiscard]] int losses(rowlock::loss_reason why) const;
    /// Ends the threads. The clients stay.
    void stop();
    [[nodiscard]] stress::history past() const;
    [[nodiscard]] rowlock::client& client(std::size_t i) { return *clients_.at(i); }

private:
    void use(std::size_t client, int thread);
    void hold(rowlock::client& locks, stress::observed_hold one, const std::stop_token& over);
    void failed(const char* call, stress::micros called, const rowlock::error& failure);

    const settings how_;
    std::atomic<int> grants_{0};
    mutable std::mutex mutex_;
    stress::history past_;
    std::map<std::string, failures_of_a_kind> failures_;
    std::map<rowlock::loss_reason, int> losses_;
    std::vector<std::unique_ptr<rowlock::client>> clients_;
    std::stop_source over_;
    std::vector<std::jthread> threads_;
};

}  // namespace fault
