#include "quorum/task_pool.hpp"

#include "base/signal_blocked_thread.hpp"
#include "lock/session/grant.hpp"

#include <utility>

namespace rowlock::detail {

void task_pool::close() noexcept {
    std::vector<std::thread> threads;
    {
        const std::lock_guard lock{mutex_};
        closing_ = true;
        threads.swap(threads_);
    }
    changed_.notify_all();
    for (auto& each : threads) each.join();
}

void task_pool::post(std::function<void()> task) {
    const std::lock_guard lock{mutex_};
    if (closing_) throw client_destroyed();
    tasks_.push_back(std::move(task));
    if (idle_ < tasks_.size()) {
        try {
            threads_.reserve(threads_.size() + 1);  // a thread that has begun must have a place
            threads_.push_back(base::signal_blocked_thread([this] { work(); }));
        } catch (...) {
            if (threads_.empty() || then_ == without_thread::refuses) {
                tasks_.pop_back();
                throw;
            }
            // One of the others takes it when it is free.
        }
    }
    changed_.notify_one();
}

void task_pool::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        ++idle_;
        changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
        --idle_;
        if (tasks_.empty()) return;
        auto task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        task = nullptr;  // what it keeps alive may end with it
        lock.lock();
    }
}

}  // namespace rowlock::detail
