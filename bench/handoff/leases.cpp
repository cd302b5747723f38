#include "common/observed_connection.hpp"
#include "handoff/contests.hpp"
#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <utility>

namespace handoff {
namespace {

const rowlock::lock_name contended{"contended"};

rowlock::client_options options_of(const lease_options& options) {
    rowlock::client_options result;
    result.wake_ups = options.wake_ups;
    return result;
}

rowlock::sql::connection_source source_of(const lease_options& options) {
    return rowlock::open(options.url).with_tables({.prefix = options.prefix});
}

class lease_contender final : public contender {
public:
    lease_contender(const lease_options& options, std::atomic<std::uint64_t>& statements)
        : locks_{bench::counted(source_of(options), statements), options_of(options)} {
        taking_.queueing = options.queueing;
        taking_.spin = options.spin;
        // Opens the session and prepares statements before the clock starts.
        auto own = locks_.try_acquire("warm-up of " + std::to_string(::getpid()));
        if (own) own->release();
    }

    void acquire() override {
        lease_ = locks_.try_acquire_for(contended, patience, taking_);
        if (!lease_) throw std::runtime_error{"waited for a minute and got nothing"};
    }

    void release() override {
        lease_->release();
        lease_.reset();
    }

private:
    rowlock::client locks_;
    rowlock::acquire_options taking_;
    std::optional<rowlock::lease> lease_;
};

std::int64_t count(rowlock::sql::connection& db, const std::string& query) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    return db.query(query, until).integer(0, 0);
}

}  // namespace

contest leases(const lease_options& options) {
    const bool fair = options.queueing == rowlock::queueing::fair;
    const char* const how = options.wake_ups == rowlock::wakeup_mode::automatic  ? ""
                            : options.wake_ups == rowlock::wakeup_mode::database ? ", by database"
                                                                                 : ", polling";
    return {std::string{"rowlock, "} + (fair ? "fair" : "barging") + how,
            [options](const entrant& who) {
                return std::make_unique<lease_contender>(options, who.statements);
            }};
}

void prepare_leases(const lease_options& options) {
    rowlock::migrate(source_of(options));
}

void clear_leases(const lease_options& options) {
    const auto source = source_of(options);
    const auto db = source.connect(std::chrono::steady_clock::now() + std::chrono::seconds{30});
    const auto held =
        count(*db, "select count(*) from " + options.prefix + "lease where session is not null");
    const auto waiting = count(*db, "select count(*) from " + options.prefix + "waiter");
    rowlock::migrate(source, {}, 0);
    if (held != 0 || waiting != 0) {
        throw std::runtime_error{"left behind: " + std::to_string(held) + " leases held, " +
                                 std::to_string(waiting) + " waiters"};
    }
}

}  // namespace handoff
