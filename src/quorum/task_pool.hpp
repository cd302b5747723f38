#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rowlock::detail {

/// Threads for calls to databases: as many as there are tasks at a time, each used again.
/// Thread-safe.
class task_pool {
public:
    /// What becomes of a task when no thread is idle, and none can be made.
    enum class without_thread : unsigned char {
        waits,    ///< for one of the others: for tasks that end soon
        refuses,  ///< post() throws: for tasks that may wait for each other
    };
    explicit task_pool(without_thread then) : then_{then} {}
    task_pool(const task_pool&) = delete;
    task_pool& operator=(const task_pool&) = delete;
    ~task_pool() { close(); }

    /// @param task must not throw
    /// @throws std::exception if no thread can be made and none is free, or it is closed
    void post(std::function<void()> task);
    /// Runs what was posted, and waits for it.
    void close() noexcept;

private:
    void work();

    const without_thread then_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::size_t idle_ = 0;
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace rowlock::detail
