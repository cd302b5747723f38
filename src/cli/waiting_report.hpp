#pragma once

#include <rowlock/client.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rowlock::cli {

/// Who has one of these locks, of any kind, for people: "report.sh, pid 12 on host, for 4m12s", of
/// several behind the name. Empty if none is held, or if that cannot be read now.
[[nodiscard]] std::string holder_of_any(client& locks, const std::vector<std::string>& names);

/// While a command waits for locks: writes on standard error who has them and where it stands in
/// the queue, after a second and then whenever that has changed. It reads on a thread of its own.
class waiting_report {
public:
    /// @param position in the queue, as last known; 0: not known
    waiting_report(client& locks, std::vector<std::string> names,
                   std::function<std::int64_t()> position);
    waiting_report(const waiting_report&) = delete;
    waiting_report& operator=(const waiting_report&) = delete;
    /// Ends it, after at most one statement.
    ~waiting_report() = default;

private:
    void run(const std::stop_token& over);

    client& locks_;
    const std::vector<std::string> names_;
    const std::function<std::int64_t()> position_;
    std::mutex mutex_{};
    std::condition_variable_any sleep_{};
    std::jthread thread_;  ///< the last: it uses the others
};

}  // namespace rowlock::cli
