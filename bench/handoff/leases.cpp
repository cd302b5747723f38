#include "common/observed_connection.hpp"
#include "handoff/contests.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <unistd.h>

#include <memory>
#include <mutex>
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

std::shared_ptr<rowlock::client> client_of(const lease_options& options,
                                           std::atomic<std::uint64_t>& statements) {
    return std::make_shared<rowlock::client>(bench::counted(source_of(options), statements),
                                             options_of(options));
}

class lease_contender final : public contender {
public:
    lease_contender(const lease_options& options, std::shared_ptr<rowlock::client> locks)
        : locks_{std::move(locks)}, limit_{options.limit} {
        taking_.queueing = options.queueing;
        taking_.spin = options.spin;
        // Opens the session and prepares statements before the clock starts.
        auto own = locks_->try_acquire("warm-up of " + std::to_string(::getpid()));
        if (own) own->release();
    }

    void acquire() override {
        const auto last = std::chrono::steady_clock::now() + patience;
        do {
            lease_ = limit_.count() > 0 ? try_briefly()
                                        : locks_->try_acquire_for(contended, patience, taking_);
        } while (!lease_ && std::chrono::steady_clock::now() < last);
        if (!lease_) throw std::runtime_error{"waited for a minute and got nothing"};
    }

    void release() override {
        lease_->release();
        lease_.reset();
    }

private:
    std::optional<rowlock::lease> try_briefly() {
        try {
            return locks_->try_acquire_for(contended, limit_, taking_);
        } catch (const rowlock::error& failure) {
            // No answer within the limit: a failed try as well.
            if (failure.kind() != rowlock::errc::timed_out) throw;
            return std::nullopt;
        }
    }

    std::shared_ptr<rowlock::client> locks_;
    std::chrono::milliseconds limit_;
    rowlock::acquire_options taking_;
    std::optional<rowlock::lease> lease_;
};

/// The client of all contenders of a process, which is closed with the last of them.
class shared_client {
public:
    std::shared_ptr<rowlock::client> get(const lease_options& options,
                                         std::atomic<std::uint64_t>& statements) {
        const std::scoped_lock lock{mutex_};
        auto locks = locks_.lock();
        if (!locks) {
            locks = client_of(options, statements);
            locks_ = locks;
        }
        return locks;
    }

private:
    std::mutex mutex_;
    std::weak_ptr<rowlock::client> locks_;
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
                return std::make_unique<lease_contender>(options,
                                                         client_of(options, who.statements));
            }};
}

contest leases_of_one_client(const lease_options& options) {
    return {"rowlock, one client",
            [options, one = std::make_shared<shared_client>()](const entrant& who) {
                return std::make_unique<lease_contender>(options,
                                                         one->get(options, who.statements));
            },
            true};
}

void prepare_leases(const lease_options& options) {
    rowlock::migrate(source_of(options));
}

void clear_leases(const lease_options& options) {
    const auto source = source_of(options);
    const auto db = source.connect(std::chrono::steady_clock::now() + std::chrono::seconds{30});
    const auto held =
        count(*db, "select count(*) from " + options.prefix + "lock where session is not null");
    const auto waiting = count(*db, "select count(*) from " + options.prefix + "ticket");
    rowlock::migrate(source, {}, 0);
    if (held != 0 || waiting != 0) {
        throw std::runtime_error{"left behind: " + std::to_string(held) + " leases held, " +
                                 std::to_string(waiting) + " waiters"};
    }
}

}  // namespace handoff
