#include "base/ablation.hpp"
#include "lock/protocol/multi/multi_dialects.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/connection_memory.hpp"
#include "sql/database_traits.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include "sql/value_list.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::protocol {
namespace {

using outcome = attempt::outcome;
using sql::value;

/// Looks first, then writes in a short transaction, which judges again what was read: a whole lock
/// by compare-and-set on its token, the room for a part on the locked row. The rows are written in
/// the order of their names, whatever is wanted of each, then the entries in that of their tickets,
/// then the holds of the parts.
class two_step_multi_protocol final : public multi_protocol {
public:
    explicit two_step_multi_protocol(const sql::statement_set& statements)
        : statements_{statements},
          look_{statements("multi_look")},
          take_{statements("take")},
          take_part_{statements("take_permits")},
          use_{statements("use_permits")},
          insert_hold_{statements("insert_permit")},
          delete_ticket_{statements("delete_served_ticket")},
          restore_{statements("restore_lease")},
          holds_{statements("permits_of")} {
        if (sql::traits_of(statements.speaks()).has_server)
            lock_all_.emplace(statements("lock_all"));
    }

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto seen = look_at(db, request, until);
        if (seen.lacks_rows) {
            restore(db, request, seen, until);
            seen = look_at(db, request, until);
        }
        if (seen.answer.what != outcome::granted) return std::move(seen.answer);
        if (!write(db, request, seen, until)) return {.what = outcome::contested};
        if (request.has_parts()) read_tokens_of_parts(db, request, seen.answer, until);
        return std::move(seen.answer);
    }

    /// By one statement, whose text depends on how many names there are.
    void enqueue(sql::connection& db, const multi_request& request,
                 sql::deadline until) const override;

private:
    struct seen_lock {
        std::size_t place;   ///< in the request
        std::int64_t token;  ///< as read
    };
    struct look {
        multi_attempt answer;              ///< granted: all could be taken
        std::vector<seen_lock> locks{};    ///< those that have a row, by name
        std::vector<ticket_no> tickets{};  ///< our entries, where each is the first of its queue
        /// Rows are to be made: of a part in any case, else if nothing else is in the way.
        bool lacks_rows = false;
    };

    [[nodiscard]] look look_at(sql::connection& db, const multi_request& request,
                               sql::deadline until) const {
        std::array<value, 1 + sql::list_size> parameters{value{request.session}};
        sql::put_list(std::span<value>{parameters}, 1, request.names,
                      [](const wanted_name& each) { return each.name; });
        const auto rows = db.execute(look_, parameters, until);
        if (rows.empty()) throw no_token_floor();
        look seen{.answer = {.what = outcome::granted}};
        seen.answer.tokens.resize(request.names.size());
        if (rows.integer(0, 1) == 0) {
            seen.answer.what = outcome::session_dead;
            return seen;
        }
        std::vector<bool> found(request.names.size());
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (rows.is_null(row, 2)) continue;
            const auto place = place_of(request, rows.text(row, 2));
            found[place] = true;
            seen.locks.push_back({place, rows.integer(row, 3)});
            seen.answer.tokens[place] = std::max(rows.integer(row, 3), rows.integer(row, 0)) + 1;
            judge(rows, row, request, request.names[place], seen);
        }
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (found[i]) continue;
            const auto& [name, id, what] = request.names[i];
            require_obtainable(name, what, std::nullopt);
            seen.lacks_rows =
                seen.lacks_rows || what.is_part() || seen.answer.what != outcome::held;
        }
        if (seen.lacks_rows && seen.answer.what == outcome::granted) {
            seen.answer.what = outcome::contested;
        }
        return seen;
    }

    /// Notes what the row says of one lock.
    static void judge(const sql::result& rows, std::size_t row, const multi_request& request,
                      const wanted_name& wanted, look& seen) {
        const bool part = wanted.what.is_part();
        const auto first = rows.maybe_integer<rowlock::grant_id>(row, 8);
        if (request.queued && first) seen.tickets.push_back(rows.integer<ticket_no>(row, 7));
        const auto capacity = rows.maybe_integer(row, 9);
        if (part || capacity) require_obtainable(wanted.name, wanted.what, capacity);
        const bool has_room = part && wanted.what.count <= rows.integer(row, 11);
        const bool free = part ? has_room : rows.integer(row, 4) != 0;
        const bool full = part ? !has_room : rows.integer(row, 10) != 0;
        if (!part) {
            if (const auto expired = rows.maybe_integer<session_id>(row, 5)) {
                seen.answer.expired.push_back(*expired);
            }
            note_remaining(seen.answer, rows.maybe_integer(row, 6));
        }
        if (free && is_our_turn(request, first)) return;
        seen.answer.what = outcome::held;
        if (full) seen.answer.full.emplace_back(wanted.name);
    }

    /// Whether no other waiter comes before the request at a name.
    /// @param first the grant id of the first entry there, if there is one
    [[nodiscard]] static bool is_our_turn(const multi_request& request,
                                          std::optional<grant_id> first) {
        if (request.barging) return true;
        if (!first) return !request.queued;
        return std::ranges::find(request.names, *first, &wanted_name::grant_id) !=
               request.names.end();
    }

    void restore(sql::connection& db, const multi_request& request, const look& seen,
                 sql::deadline until) const {
        for (std::size_t i = 0; i < request.names.size(); ++i) {
            if (std::ranges::find(seen.locks, i, &seen_lock::place) != seen.locks.end()) continue;
            restore_row(db, restore_, request.names[i].name, until);
        }
    }

    /// Returns false, and changes nothing, if another client changed one of the rows since they
    /// were read, an entry is gone, or the session has ended.
    [[nodiscard]] bool write(sql::connection& db, const multi_request& request, look& seen,
                             sql::deadline until) const {
        std::vector<std::vector<value>> all;
        std::vector<sql::step> steps;
        const auto parts = static_cast<std::size_t>(std::ranges::count_if(
            request.names, [](const auto& each) { return each.what.is_part(); }));
        all.reserve(seen.locks.size() + seen.tickets.size() + parts);  // the steps refer to them
        const auto add = [&](const sql::statement& what, std::vector<value> parameters) {
            all.push_back(std::move(parameters));
            steps.push_back({what, all.back()});
        };
        const auto thread = sql::text_or_null(request.thread);
        const auto note = sql::text_or_null(request.note);
        for (const auto& [place, token] : seen.locks) {
            const auto& [name, id, what] = request.names[place];
            if (!what.is_part()) {
                add(take_,
                    {value{name}, value{request.session}, value{id}, thread, note,
                     value{request.deadline_us}, value{token}, value{seen.answer.tokens[place]}});
            } else if (request.queued) {
                add(use_, {value{name}, value{what.count}});
            } else {
                add(take_part_, {value{name}, value{request.session}, value{what.count},
                                 value{static_cast<int>(what.of)}, value{1}});
            }
        }
        std::ranges::sort(seen.tickets);
        for (const auto each : seen.tickets) add(delete_ticket_, {value{each}});
        for (const auto& [name, id, what] : request.names) {
            if (!what.is_part()) continue;
            add(insert_hold_, {value{name}, value{request.session}, value{id}, value{what.count},
                               thread, note, value{request.deadline_us}, value{0}});
        }
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

    /// Afterwards: between the look and the update other clients may have raised a token.
    void read_tokens_of_parts(sql::connection& db, const multi_request& request,
                              multi_attempt& made, sql::deadline until) const {
        try {
            const auto rows = sql::run(db, holds_, until, request.session);
            for (std::size_t i = 0; i < request.names.size(); ++i) {
                if (!request.names[i].what.is_part()) continue;
                std::size_t row = 0;
                while (row < rows.rows() &&
                       rows.integer<grant_id>(row, 1) != request.names[i].grant_id) {
                    ++row;
                }
                // Its own deadline has passed, or an operator has ended it: the others go back.
                if (row == rows.rows()) {
                    throw error{errc::lock_lost, "one of them has ended already"};
                }
                made.tokens[i] = rows.integer(row, 2);
            }
        } catch (const error& failure) {
            throw error{
                errc::outcome_unknown,
                std::string{"committed, but the grants could not be read: "} + failure.what()};
        }
    }

    /// Locks the rows, waiting for none: a transaction that was fenced with an earlier grant may
    /// have one locked for long, and a waiter is to give up in time. Returns false if one is
    /// locked.
    [[nodiscard]] bool lock(sql::connection& db, const multi_request& request,
                            sql::deadline until) const {
        std::array<value, sql::list_size> names{};
        sql::put_list(std::span<value>{names}, 0, request.names,
                      [](const wanted_name& each) { return each.name; });
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

    struct text_for_a_number {
        std::once_flag once{};
        std::optional<sql::statement> text{};
    };

    [[nodiscard]] const sql::statement& enqueue_for(std::size_t count) const;

    const sql::statement_set statements_;
    const sql::statement look_, take_, take_part_, use_, insert_hold_, delete_ticket_, restore_,
        holds_;
    std::optional<sql::statement> lock_all_;  ///< MySQL
    /// Each is made when it is first needed.
    mutable std::array<text_for_a_number, most_names + 1> enqueue_{};
};

void two_step_multi_protocol::enqueue(sql::connection& db, const multi_request& request,
                                      sql::deadline until) const {
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
        const auto& what = request.names[i].what;
        parameters.push_back(what.is_part() ? value{what.count} : value{});
    }
    db.execute(enqueue_for(request.names.size()), parameters, until);
}

const sql::statement& two_step_multi_protocol::enqueue_for(std::size_t count) const {
    auto& made = enqueue_.at(count);
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

}  // namespace

std::unique_ptr<const multi_protocol> make_two_step_multi(const sql::statement_set& statements) {
    return std::make_unique<const two_step_multi_protocol>(statements);
}

}  // namespace rowlock::protocol
