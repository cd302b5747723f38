#include "coordination/protocol/multi/multi_two_step.hpp"

#include "base/ablation.hpp"
#include "sql/connection_memory.hpp"
#include "sql/database_traits.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include "sql/value_list.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>

namespace rowlock::protocol {
namespace {

using outcome = attempt::outcome;
using sql::value;

/// By compare-and-set on the tokens that were read.
class two_step_multi_protocol final : public multi_protocol {
public:
    explicit two_step_multi_protocol(const sql::statement_set& statements)
        : look_{statements("multi_look")},
          take_{statements("take")},
          delete_ticket_{statements("delete_served_ticket")},
          restore_lease_{statements("restore_lease")},
          enqueue_{statements} {
        if (sql::traits_of(statements.speaks()).has_server)
            lock_all_.emplace(statements("lock_all"));
    }

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto seen = look_at(db, request, until);
        if (seen.answer.what == outcome::contested) {
            restore(db, request, seen, until);
            seen = look_at(db, request, until);
        }
        if (seen.answer.what != outcome::granted) return std::move(seen.answer);
        if (!write(db, request, seen, until)) return {.what = outcome::contested};
        return std::move(seen.answer);
    }

    void enqueue(sql::connection& db, const multi_request& request,
                 sql::deadline until) const override {
        enqueue_.run(db, request, until);
    }

private:
    struct free_lease {
        std::string name;
        std::int64_t token;  ///< as read
    };
    struct look {
        multi_attempt answer;            ///< granted: all could be taken
        std::vector<free_lease> leases;  ///< those that have a row, by name
        std::vector<ticket_no> tickets;  ///< our entries, where each is the first of its queue
    };

    [[nodiscard]] look look_at(sql::connection& db, const multi_request& request,
                               sql::deadline until) const {
        std::array<value, 1 + sql::list_size> parameters{value{request.session}};
        sql::put_list(std::span<value>{parameters}, 1, request.names,
                      [](const granted_name& each) { return each.name; });
        const auto rows = db.execute(look_, parameters, until);
        if (rows.empty()) throw no_token_floor();
        look seen{.answer = {.what = outcome::granted}, .leases = {}, .tickets = {}};
        const auto floor = rows.integer(0, 0);
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (rows.is_null(row, 2)) continue;
            const auto token = rows.integer(row, 3);
            seen.leases.push_back({std::string{rows.text(row, 2)}, token});
            seen.answer.tokens.push_back(std::max(token, floor) + 1);
            if (const auto expired = rows.maybe_integer<session_id>(row, 5)) {
                seen.answer.expired.push_back(*expired);
            }
            note_remaining(seen.answer, rows.maybe_integer(row, 6));
            const bool free = rows.integer(row, 4) != 0;
            const auto first = rows.maybe_integer<rowlock::grant_id>(row, 8);
            if (!free || !is_our_turn(request, first)) {
                seen.answer.what = outcome::held;
                if (rows.integer(row, 11) == 2) throw name_of_semaphore(seen.leases.back().name);
                if (rows.integer(row, 11) == 1) {
                    seen.answer.full.push_back(seen.leases.back().name);
                }
                note_held(seen.answer, seen.leases.back().name,
                          rows.maybe_integer<session_id>(row, 9),
                          rows.maybe_integer<rowlock::grant_id>(row, 10));
            }
            if (request.queued && !rows.is_null(row, 7)) {
                seen.tickets.push_back(rows.integer<ticket_no>(row, 7));
            }
        }
        // Nothing but the rows of some names is missing.
        const bool lacks = seen.leases.size() < request.names.size();
        if (lacks && seen.answer.what == outcome::granted) seen.answer.what = outcome::contested;
        if (rows.integer(0, 1) == 0) seen.answer.what = outcome::session_dead;
        return seen;
    }

    void restore(sql::connection& db, const multi_request& request, const look& seen,
                 sql::deadline until) const {
        for (const auto& each : request.names) {
            if (std::ranges::find(seen.leases, each.name, &free_lease::name) != seen.leases.end()) {
                continue;
            }
            restore_row(db, restore_lease_, each.name, until);
        }
    }

    /// Returns false, and changes nothing, if another client changed one of the rows since they
    /// were read.
    [[nodiscard]] bool write(sql::connection& db, const multi_request& request, look& seen,
                             sql::deadline until) const {
        std::vector<std::array<value, 8>> leases;
        for (std::size_t i = 0; i < seen.leases.size(); ++i) {
            const auto& [name, token] = seen.leases[i];
            const auto id = request.names[place_of(request, name)].grant_id;
            leases.push_back({value{name}, value{request.session}, value{id},
                              sql::text_or_null(request.thread), sql::text_or_null(request.note),
                              value{request.deadline_us}, value{token},
                              value{seen.answer.tokens[i]}});
        }
        std::ranges::sort(seen.tickets);
        std::vector<std::array<value, 1>> tickets;
        for (const auto each : seen.tickets) tickets.push_back({value{each}});
        std::vector<sql::step> steps;
        for (const auto& each : leases) steps.push_back({take_, each});
        for (const auto& each : tickets) steps.push_back({delete_ticket_, each});
        const bool locks_first = request.queued && lock_all_.has_value();
        if (base::uses(base::fast_path::single_text) && !locks_first) {
            if (const auto committed = db.transact(steps, {}, until)) return *committed;
        }
        sql::transaction_scope transaction{db, until};
        if (locks_first && !lock(db, request, until)) return false;
        for (const auto& each : steps) {
            if (db.execute(each.what, each.parameters, until).affected() != 1) return false;
        }
        transaction.commit(until);
        return true;
    }

    /// Locks the rows of the leases, waiting for none: a transaction that was fenced with an
    /// earlier grant may have one locked for long, and a waiter is to give up in time. Returns
    /// false if one is locked.
    [[nodiscard]] bool lock(sql::connection& db, const multi_request& request,
                            sql::deadline until) const {
        std::array<value, sql::list_size> names{};
        sql::put_list(std::span<value>{names}, 0, request.names,
                      [](const granted_name& each) { return each.name; });
        auto& known = sql::memory_of(db);
        if (known.refuses_skip_locked) return true;
        try {
            return db.execute(*lock_all_, names, until).rows() == request.names.size();
        } catch (const error& failure) {
            constexpr int syntax_error = 1064;  // MariaDB before 10.6, MySQL before 8
            if (!db.alive() || failure.native_code() != syntax_error) throw;
            known.refuses_skip_locked = true;
            return true;  // the writes wait for the rows
        }
    }

    const sql::statement look_, take_, delete_ticket_, restore_lease_;
    std::optional<sql::statement> lock_all_;  ///< MySQL
    const multi_enqueue enqueue_;
};

}  // namespace

void multi_enqueue::run(sql::connection& db, const multi_request& request,
                        sql::deadline until) const {
    const bool counted = !request.permits.empty();
    std::vector<value> parameters{value{request.session},
                                  sql::text_or_null(request.thread),
                                  sql::text_or_null(request.note),
                                  value{request.deadline_us},
                                  sql::text_or_null(request.blocks),
                                  value{request.names.size()},
                                  value{request.limit_us}};
    for (std::size_t i = 0; i < request.names.size(); ++i) {
        parameters.emplace_back(request.names[i].name);
        parameters.emplace_back(request.names[i].grant_id);
        parameters.push_back(counted ? value{request.permits[i]} : value{});
    }
    db.execute(for_names(request.names.size()), parameters, until);
}

const sql::statement& multi_enqueue::for_names(std::size_t count) const {
    auto& made = made_.at(count);
    std::call_once(made.once, [&] {
        std::string all;
        for (std::size_t i = 0; i < count; ++i) {
            const auto parameter = [&](std::size_t its) {
                return '$' + std::to_string(8 + 3 * i + its);
            };
            all.append(i == 0 ? "" : ",\n       ")
                .append("(" + parameter(0) + ", $1, " + parameter(1) +
                        ", $2, $3, $4, {one_now}, $5, $6, {one_now} + $7, " + parameter(2) + ")");
        }
        made.text.emplace(statements_.text_of("multi_enqueue", {{"entries", all}}));
    });
    return *made.text;
}

std::unique_ptr<const multi_protocol> make_two_step_multi(const sql::statement_set& statements) {
    return std::make_unique<const two_step_multi_protocol>(statements);
}

}  // namespace rowlock::protocol
