#include "strategies.hpp"

#include "crew.hpp"
#include <rowlock/rowlock.hpp>

#include <algorithm>
#include <array>
#include <thread>

using namespace std::chrono_literals;
using rowlock::errc;

namespace {

/// Each worker process has one thread.
const rowlock::client_options one_thread{.max_connections = 1};

// --- none: read, think, write. Two workers that read the same number sell one item twice. -------

void without_a_lock(clerk& me) {
    while (me.sell_in_transaction()) {
    }
}

// --- lease: one process at a time; one that was paused for too long still writes. ---------------

void under_a_lease(clerk& me) {
    rowlock::client locks{me.database, one_thread};
    for (bool more = true; more;) {
        auto lease = locks.acquire(me.lock_name);
        more = me.sell_in_transaction();
        lease.release();
    }
}

// --- fence: the same, and the sale is committed only if the lease is still held. ----------------

bool sell_if_still_ours(clerk& me, const rowlock::lease& lease) {
    transaction within{me.db};
    rowlock::fence(me.db, lease);
    const int stock = me.goods.stock(me.db);
    if (stock <= 0) return false;
    me.think();
    me.goods.sell(me.db, stock, me.next_sale++);
    within.commit();
    me.sold_one();
    return true;
}

void under_a_fence(clerk& me) {
    rowlock::client locks{me.database, one_thread};
    for (bool more = true; more;) {
        try {
            auto lease = locks.acquire(me.lock_name);
            more = sell_if_still_ours(me, lease);
            lease.release();
        } catch (const rowlock::error& failure) {
            if (failure.kind() != errc::lock_lost && !failure.retryable()) throw;
            me.met_conflict();  // the lease was lost: nothing was sold
            me.tried_again();
        }
    }
}

// --- row: the row itself is locked for the length of a transaction. -----------------------------

/// With many workers a wait may take long.
const rowlock::retry_policy patient{
    .attempts = 100'000, .backoff = 1ms, .max_backoff = 50ms, .total = std::chrono::minutes{30}};

void under_a_row_lock(clerk& me) {
    const rowlock::row_session_options options{.wait = rowlock::row_wait::bounded(1min),
                                               .max_sessions = 1};
    const auto sell = [&](rowlock::row_session& session) {
        const auto row = session.lock(me.goods.stock_table(), {"id"}, {1}, {.columns = {"items"}});
        const auto stock = static_cast<int>(row->integer("items"));
        if (stock <= 0) return false;
        me.think();
        me.goods.sell(session.connection(), stock, me.next_sale++);
        return true;
    };
    for (bool more = true; more;) {
        const auto done = rowlock::retry(me.database, patient, options, sell);
        for (int again = 1; again < done.attempts; ++again) me.tried_again();
        more = done.value;
        if (more) me.sold_one();
    }
}

// --- advisory: a name, locked by a connection. --------------------------------------------------

void under_an_advisory_lock(clerk& me) {
    rowlock::advisory_client locks{me.database};
    for (bool more = true; more;) {
        auto held = locks.lock(me.lock_name);
        more = me.sell_in_transaction();
        held.unlock();
    }
}

// --- optimistic: no lock; the second writer starts again. ---------------------------------------

void optimistically(clerk& me) {
    const rowlock::versioned_table stock{
        {.table = me.goods.stock_table(), .key = {"id"}, .version = "version"}};
    const auto sell = [&](int) {
        const auto row = stock.read(me.db, 1, {"items"});
        const auto left = static_cast<int>(row->integer("items"));
        if (left <= 0) return rowlock::update_result::gone();
        me.think();
        try {
            auto sold = stock.update(me.db, 1, row->version(), {{"items", left - 1}});
            sold.or_throw();
            me.goods.record(me.db, left, me.next_sale++);
            return sold;
        } catch (const rowlock::error& failure) {
            // rowlock's conflict, or the server's: MariaDB 11.6 and later end the transaction at
            // once.
            if (failure.kind() == rowlock::errc::conflict) me.met_conflict();
            throw;
        }
    };
    for (bool more = true; more;) {
        // A transaction for each attempt, committed if the row was unchanged.
        const auto done = rowlock::retry_on_conflict(me.db, patient, sell);
        for (int again = 1; again < done.attempts; ++again) me.tried_again();
        more = static_cast<bool>(done.value);
        if (more) me.sold_one();
    }
}

constexpr std::array all{
    strategy{"none", without_a_lock, false, true},
    strategy{"lease", under_a_lease, true, true},
    strategy{"fence", under_a_fence, true, true},
    strategy{"row", under_a_row_lock, true, true},
    strategy{"advisory", under_an_advisory_lock, true, false},
    strategy{"optimistic", optimistically, true, true},
};

}  // namespace

void clerk::think() const {
    std::this_thread::sleep_for(to_think);
}

bool clerk::sell_in_transaction() {
    const int stock = goods.stock(db);
    if (stock <= 0 || patience-- <= 0) return false;
    think();
    transaction within{db};
    goods.sell(db, stock, next_sale++);
    within.commit();
    sold_one();
    return true;
}

void clerk::sold_one() {
    tell(tally::sold);
}

void clerk::met_conflict() {
    tell(tally::conflict);
}

void clerk::tried_again() {
    tell(tally::again);
}

std::span<const strategy> strategies() {
    return all;
}

const strategy* find_strategy(std::string_view name) {
    const auto found =
        std::ranges::find_if(all, [&](const strategy& each) { return each.name == name; });
    return found == all.end() ? nullptr : &*found;
}
