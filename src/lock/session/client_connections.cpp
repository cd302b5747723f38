#include "lock/session/client_connections.hpp"

#include "sql/array_text.hpp"
#include "sql/brief_wait.hpp"
#include "sql/pooler.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/forwarding_connection.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rowlock::detail {
namespace {

using steady = std::chrono::steady_clock;

/// SQLite has one writer per file. More connections would only compete for its lock, which is not
/// fair; our threads wait for a connection instead.
std::size_t budget_of(const client_context& context) {
    const int wanted = context.options.max_connections;
    return static_cast<std::size_t>(context.traits().one_writer ? std::min(wanted, 2) : wanted);
}

error too_many_abandoned() {
    return error{errc::out_of_resources,
                 "the server still runs statements of this client that met their deadline, and no "
                 "cancel ends them: no further connection is made until it has ended some "
                 "(pg_stat_activity shows what they wait for)"};
}

/// None if this role may not ask: it cannot be known, and a healthy server must not be refused.
std::vector<std::int64_t> still_running(sql::connection& db, const client_context& context,
                                        const std::vector<std::int64_t>& processes,
                                        sql::deadline until) {
    std::vector<std::int64_t> running;
    sql::array_text all;
    for (const auto each : processes) all.add(each);
    try {
        const auto rows = sql::run(db, context.statements("running_processes"), until, all.close());
        for (std::size_t row = 0; row < rows.rows(); ++row) running.push_back(rows.integer(row, 0));
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
    }
    return running;
}

/// Notes when it is dropped while the server may still run a statement.
class watched_connection final : public sql::forwarding_connection {
public:
    watched_connection(std::unique_ptr<sql::connection> made, const client_context& context,
                       abandoned_connections& abandoned, sql::deadline until)
        : forwarding_connection{std::move(made)},
          context_{context},
          abandoned_{abandoned},
          process_{sql::process_of(inner(), until)} {}

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return watch(until,
                     [&] { return forwarding_connection::execute(what, parameters, until); });
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return watch(until, [&] { return forwarding_connection::query(text, until); });
    }

private:
    template <typename Call>
    std::invoke_result_t<Call&> watch(sql::deadline until, Call call) {
        try {
            return call();
        } catch (const error&) {
            if (!alive() && steady::now() >= until) abandoned_.add(process_, context_.now());
            throw;
        }
    }

    const client_context& context_;
    abandoned_connections& abandoned_;
    const std::int64_t process_;
};

}  // namespace

client_connections::client_connections(client_context& context, hooks use)
    : context_{context},
      hooks_{std::move(use)},
      budget_{budget_of(context)},
      shared_{{.connect = [this](sql::deadline until) { return connect(until, rank::first); },
               .on_used = [this] { hooks_.on_shared_turn(); }}},
      pool_{{.connect = [this](sql::deadline until) { return make(until); },
             .when_full = "all connections of this client are busy: raise max_connections",
             .on_broken = [this] { broke(); }}} {}

std::unique_ptr<sql::connection> client_connections::make(sql::deadline until, rank who) {
    auto db = context_.shares_connection() ? shared_.join(who, until) : connect(until, who);
    hooks_.on_connected(*db, until);
    return db;
}

std::unique_ptr<sql::connection> client_connections::connect(sql::deadline until, rank who) {
    constexpr std::size_t more = 2;
    const std::size_t most =
        (context_.shares_connection() ? 0 : budget_) + (who == rank::first ? 2 * more : more);
    if (abandoned_.refuses(most, context_.now())) throw too_many_abandoned();
    auto db = context_.source.connect(until);
    if (context_.traits().notifies && db->keeps_session_state()) {
        db = std::make_unique<watched_connection>(std::move(db), context_, abandoned_, until);
    }
    context_.sessions.set_up(*db, context_.options.statement_timeout, until);
    require_few_abandoned(*db, most, until);
    // A heartbeat must not wait for another user's row lock.
    if (context_.shares_connection()) sql::set_short_lock_timeout(*db, until);
    return db;
}

/// @throws error errc::out_of_resources if the server still runs that many statements which this
/// client has given up
void client_connections::require_few_abandoned(sql::connection& db, std::size_t most,
                                               sql::deadline until) {
    const auto processes = abandoned_.if_too_many(most, context_.now());
    if (processes.empty()) return;
    auto running = processes;
    try {
        running = still_running(db, context_, processes, until);
    } catch (...) {
        abandoned_.keep(running, most, context_.now());
        throw;
    }
    if (!abandoned_.keep(running, most, context_.now())) throw too_many_abandoned();
}

void client_connections::renew() noexcept {
    shared_.renew();  // first: a user that joins from now on joins the new one
    pool_.renew();
}

void client_connections::let_go_of_shared() noexcept {
    if (context_.shares_connection()) pool_.renew();
}

void client_connections::broke() noexcept {
    context_.count(counter::reconnects);
    let_go_of_shared();  // an idle user would keep the broken one open
    hooks_.on_broken();
}

}  // namespace rowlock::detail
