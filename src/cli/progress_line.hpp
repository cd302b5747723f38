#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace rowlock::cli {

/// What long work is doing, and for how long, on one line of the terminal that standard error is:
/// from a second on, until this is destroyed. Writes nothing elsewhere, and nothing for short work.
class progress_line {
public:
    explicit progress_line(std::string doing);
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;
    /// Removes the line.
    ~progress_line();

    /// From now on it does this. Any thread.
    void set(std::string doing);

private:
    void run(const std::stop_token& over);

    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    std::mutex mutex_{};
    std::condition_variable_any changed_{};
    std::string doing_;
    std::jthread thread_{};  ///< the last: it uses the others
};

}  // namespace rowlock::cli
