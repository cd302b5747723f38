#include "shared/contestants.hpp"

#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <shared_mutex>
#include <utility>

namespace bench {
namespace {

using namespace std::chrono_literals;

/// A thread that reads by one shared_mutex, again and again.
class reader final : public worker {
public:
    reader(std::shared_ptr<rowlock::client> locks, std::chrono::milliseconds linger)
        : locks_{std::move(locks)},
          lock_{*locks_, "page", {.note = {}, .max_duration = {}, .reader_linger = linger}} {}
    void turn() override { const std::shared_lock reading{lock_}; }

private:
    const std::shared_ptr<rowlock::client> locks_;
    rowlock::shared_mutex lock_;
};

/// A thread that takes a permit and gives it back.
class taker final : public worker {
public:
    explicit taker(std::shared_ptr<rowlock::client> locks)
        : locks_{std::move(locks)}, limit_{*locks_, "limit"} {}
    void turn() override { const auto taken = limit_.acquire(); }

private:
    const std::shared_ptr<rowlock::client> locks_;
    rowlock::semaphore limit_;
};

}  // namespace

std::unique_ptr<worker> taker_of(std::shared_ptr<rowlock::client> locks) {
    return std::make_unique<taker>(std::move(locks));
}

std::shared_ptr<rowlock::client> client_for(const tables& where,
                                            const throughput_options& options) {
    rowlock::client_options own;
    own.max_connections = options.connections;
    return std::make_shared<rowlock::client>(where.source(), own);
}

contestant readers(const tables& where, int threads, const throughput_options& options,
                   std::chrono::milliseconds linger) {
    const auto locks = client_for(where, options);
    return line_up(linger > 0ms ? "readers, sharing" : "readers", threads,
                   [&](int) { return std::make_unique<reader>(locks, linger); });
}

contestant takers(const tables& where, int threads, const throughput_options& options) {
    const auto locks = client_for(where, options);
    rowlock::semaphore{*locks, "limit"}.set_capacity(1'000'000);
    return line_up("semaphore", threads, [&](int) { return taker_of(locks); });
}

}  // namespace bench
