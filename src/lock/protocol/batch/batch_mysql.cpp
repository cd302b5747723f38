#include "lock/protocol/batch/batch_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/server_identity.hpp"
#include "sql/transaction_scope.hpp"
#include "sql/value_list.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <utility>

namespace rowlock::protocol {
namespace {

using sql::value;

struct batch_statements {
    explicit batch_statements(const sql::statement_set& load)
        : insert_all{load("insert_all")},
          lock_all{load("lock_all")},
          names_with_waiters{load("names_with_waiters")},
          probe_all{load("probe_all")},
          release_all{load("release_all")},
          release_locked{load("release_locked")},
          served_of{load("served_of")},
          take_all{load("take_all")},
          take_locked{load("take_locked")} {}

    const sql::statement insert_all, lock_all, names_with_waiters, probe_all, release_all,
        release_locked, served_of, take_all, take_locked;
};

/// Whether another client had locked a row: the statement did not wait and was undone.
bool found_a_lock(const error& failure) {
    constexpr int lock_wait_timeout = 1205;
    return failure.native_code() == lock_wait_timeout;
}

/// For MariaDB before 10.6 and MySQL before 8.
bool knows_no_skip_locked(const error& failure) {
    constexpr int syntax_error = 1064;
    return failure.native_code() == syntax_error;
}

/// The previous statement committed, but its effect cannot be read: the same as a lost reply.
[[noreturn]] void throw_unknown(const error& failure) {
    throw error{errc::outcome_unknown,
                std::string{"what a group of leases came to could not be read: "} + failure.what()};
}

using names_view = std::span<const std::string_view>;

struct group_look {
    std::int64_t floor = 0;
    std::vector<lease_probe> probes;
};

/// Names without a row are free, but may still have waiters.
void check_for_waiters(sql::connection& db, const batch_statements& sql, names_view names,
                       std::span<lease_probe> probes, sql::deadline until) {
    std::vector<std::string_view> absent;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!probes[i].present) absent.push_back(names[i]);
    }
    if (absent.empty()) return;
    std::array<value, sql::list_size> parameters{};
    sql::put_list(std::span<value>{parameters}, 0, std::span<const std::string_view>{absent},
                  [](std::string_view name) { return name; });
    const auto rows = db.execute(sql.names_with_waiters, parameters, until);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto found = std::ranges::find(names, rows.text(row, 0));
        if (found != names.end()) {
            probes[static_cast<std::size_t>(found - names.begin())].waited = true;
        }
    }
}

/// Probes up to 16 names.
void look_at(sql::connection& db, const batch_statements& sql, session_id session, names_view names,
             group_look& seen, sql::deadline until) {
    std::array<value, 1 + sql::list_size> parameters{value{session}};
    sql::put_list(std::span<value>{parameters}, 1, names,
                  [](std::string_view name) { return name; });
    const auto rows = db.execute(sql.probe_all, parameters, until);
    if (rows.empty()) throw no_token_floor();
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (!rows.is_null(row, 2)) by_name.emplace(rows.text(row, 2), row);
    }
    // Keeps the later floor of two probes: a grant must go beyond it.
    seen.floor = std::max(seen.floor, rows.integer(0, 0));
    const std::size_t first = seen.probes.size();
    for (const auto name : names) {
        const auto found = by_name.find(name);
        lease_probe& each = seen.probes.emplace_back();
        if (found == by_name.end()) {
            each.free = true;
        } else {
            each = read_lease(rows, found->second);
        }
        each.session_live = rows.integer(0, 1) != 0;
    }
    check_for_waiters(db, sql, names, std::span{seen.probes}.subspan(first), until);
}

group_look probe_rows(sql::connection& db, const batch_statements& sql, session_id session,
                      names_view names, sql::deadline until) {
    group_look seen;
    seen.probes.reserve(names.size());
    sql::for_each_part(
        names, [&](names_view part, std::size_t) { look_at(db, sql, session, part, seen, until); });
    for (auto& each : seen.probes) each.next_token = std::max(each.token, seen.floor) + 1;
    return seen;
}

/// A lease that a probe found free, and the request for it.
struct taking {
    const grant_request* request;
    std::int64_t token;  ///< probed
    bool granted = false;
};

using takings_view = std::span<taking>;

std::int64_t write_takings(sql::connection& db, const sql::statement& what,
                           std::span<const taking> some, std::int64_t floor, sql::deadline until) {
    std::array<value, 2 + 6 * sql::list_size> parameters{value{some.front().request->session},
                                                         value{floor}};
    const std::span<value> all{parameters};
    const auto put = [&](std::size_t list, auto part) {
        sql::put_list(all, 2 + list * sql::list_size, some, part);
    };
    put(0, [](const taking& each) { return each.request->name; });
    put(1, [](const taking& each) { return each.token; });
    put(2, [](const taking& each) { return each.request->grant_id; });
    put(3, [](const taking& each) { return sql::text_or_null(each.request->thread); });
    put(4, [](const taking& each) { return sql::text_or_null(each.request->note); });
    put(5, [](const taking& each) { return each.request->deadline_us; });
    return db.execute(what, parameters, until).affected();
}

/// Returns the ids of the session's grants among these names.
template <typename Item, typename Name>
std::set<grant_id> grants_of(sql::connection& db, const batch_statements& sql, session_id session,
                             std::span<const Item> items, Name name, sql::deadline until) {
    std::array<value, 1 + sql::list_size> parameters{value{session}};
    sql::put_list(std::span<value>{parameters}, 1, items, name);
    const auto rows = db.execute(sql.served_of, parameters, until);
    std::set<grant_id> found;
    for (std::size_t row = 0; row < rows.rows(); ++row)
        found.insert(rows.integer<grant_id>(row, 0));
    return found;
}

/// Takes up to 16 by one statement that never waits. Returns false if a row was locked: nothing was
/// done.
bool take_at_once(sql::connection& db, const batch_statements& sql, takings_view some,
                  std::int64_t floor, sql::deadline until) {
    std::int64_t changed = 0;
    try {
        changed = write_takings(db, sql.take_all, some, floor, until);
    } catch (const error& failure) {
        if (!found_a_lock(failure)) throw;
        return false;
    }
    if (std::cmp_equal(changed, some.size())) {
        for (auto& each : some) each.granted = true;
    } else if (changed > 0) {
        try {
            const auto found = grants_of(
                db, sql, some.front().request->session, std::span<const taking>{some},
                [](const taking& each) { return each.request->name; }, until);
            for (auto& each : some) each.granted = found.contains(each.request->grant_id);
        } catch (const error& failure) {
            throw_unknown(failure);
        }
    }
    return true;
}

/// The row of a lease that lock_all has locked.
struct locked_row {
    std::int64_t token;
    std::optional<session_id> session;
    std::optional<rowlock::grant_id> grant_id;
};

/// Locks the rows of up to 16 names, except those that are locked already.
template <typename Item, typename Name>
std::unordered_map<std::string, locked_row> lock_rows(sql::connection& db,
                                                      const batch_statements& sql,
                                                      std::span<const Item> items, Name name,
                                                      sql::deadline until) {
    std::array<value, sql::list_size> parameters{};
    sql::put_list(std::span<value>{parameters}, 0, items, name);
    const auto rows = db.execute(sql.lock_all, parameters, until);
    std::unordered_map<std::string, locked_row> locked;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        locked.emplace(rows.text(row, 0),
                       locked_row{rows.integer(row, 1), rows.maybe_integer<session_id>(row, 2),
                                  rows.maybe_integer<grant_id>(row, 3)});
    }
    return locked;
}

/// Runs `action` in a transaction that locks rows without waiting. Returns false if the server
/// cannot do that, or if `action` returned false and was rolled back.
template <typename Action>
bool with_locked_rows(sql::connection& db, sql::deadline until, Action action) {
    auto& known = sql::memory_of(db);
    if (known.refuses_skip_locked) return false;
    try {
        sql::transaction_scope transaction{db, until};
        if (!action()) return false;
        transaction.commit(until);
        return true;
    } catch (const error& failure) {
        if (!db.alive() || !knows_no_skip_locked(failure)) throw;
        known.refuses_skip_locked = true;
        return false;
    }
}

/// Takes any number, skipping rows that another client has locked. One commit.
void take_unlocked(sql::connection& db, const batch_statements& sql, takings_view some,
                   std::int64_t floor, sql::deadline until) {
    std::vector<taking*> taken;
    const auto take_part = [&](takings_view part) {
        const auto locked = lock_rows(
            db, sql, std::span<const taking>{part},
            [](const taking& each) { return each.request->name; }, until);
        std::vector<taking> ours;
        for (auto& each : part) {
            const auto found = locked.find(std::string{each.request->name});
            if (found == locked.end() || found->second.token != each.token) continue;
            ours.push_back(each);
            taken.push_back(&each);
        }
        if (ours.empty()) return true;
        return std::cmp_equal(write_takings(db, sql.take_locked, ours, floor, until), ours.size());
    };
    const bool committed = with_locked_rows(db, until, [&] {
        bool well = true;
        sql::for_each_part(some,
                           [&](takings_view part, std::size_t) { well = well && take_part(part); });
        return well;
    });
    if (!committed) return;
    for (auto* const each : taken) each->granted = true;
}

/// Inserts up to 16 names that have no row: all or none.
void insert_at_once(sql::connection& db, const batch_statements& sql, takings_view some,
                    std::int64_t floor, sql::deadline until) {
    std::array<value, 3 + 5 * sql::list_size> parameters{value{some.front().request->session},
                                                         value{floor}, value{some.size()}};
    const std::span<value> all{parameters};
    const auto put = [&](std::size_t list, auto part) {
        sql::put_list(all, 3 + list * sql::list_size, std::span<const taking>{some}, part);
    };
    put(0, [](const taking& each) { return each.request->name; });
    put(1, [](const taking& each) { return each.request->grant_id; });
    put(2, [](const taking& each) { return sql::text_or_null(each.request->thread); });
    put(3, [](const taking& each) { return sql::text_or_null(each.request->note); });
    put(4, [](const taking& each) { return each.request->deadline_us; });
    try {
        if (db.execute(sql.insert_all, parameters, until).affected() == 0) return;
    } catch (const error& failure) {
        // Nothing was inserted. Earlier grants must be reported, or no caller would know of them.
        if (failure.kind() == errc::outcome_unknown) throw;
        return;
    }
    for (auto& each : some) each.granted = true;
}

/// The number of a server, or '' if the session may be used on any: it does not identify itself, or
/// is the node of a cluster.
std::string_view number_of(std::string_view server) {
    if (server.empty() || sql::identifies_cluster(server)) return "";
    return server.substr(server.rfind(':') + 1);
}

using grants_view = std::span<const granted_name>;

std::string_view name_of(const granted_name& each) {
    return each.name;
}

std::int64_t write_releases(sql::connection& db, const sql::statement& what, session_id session,
                            grants_view some, sql::deadline until) {
    std::array<value, 1 + 2 * sql::list_size> parameters{value{session}};
    sql::put_list(std::span<value>{parameters}, 1, some, name_of);
    sql::put_list(std::span<value>{parameters}, 1 + sql::list_size, some,
                  [](const granted_name& each) { return each.grant_id; });
    return db.execute(what, parameters, until).affected();
}

/// Releases up to 16 by one statement that never waits. Returns nullopt if a row was locked:
/// nothing was done.
std::optional<std::vector<bool>> release_at_once(sql::connection& db, const batch_statements& sql,
                                                 session_id session, grants_view some,
                                                 sql::deadline until) {
    std::int64_t changed = 0;
    try {
        changed = write_releases(db, sql.release_all, session, some, until);
    } catch (const error& failure) {
        if (!found_a_lock(failure)) throw;
        return std::nullopt;
    }
    std::vector<bool> freed(some.size(), changed > 0);
    if (changed == 0 || std::cmp_equal(changed, some.size())) return freed;
    try {
        const auto kept = grants_of(db, sql, session, some, name_of, until);
        std::int64_t gone = 0;
        for (std::size_t i = 0; i < some.size(); ++i) {
            freed[i] = !kept.contains(some[i].grant_id);
            gone += freed[i] ? 1 : 0;
        }
        if (gone == changed) return freed;
    } catch (const error& failure) {
        throw_unknown(failure);
    }
    // One of them was lost before. The statement cannot report which.
    throw error{errc::outcome_unknown,
                "one of several leases that were released together had been lost"};
}

/// Releases up to 16 in a transaction; the rows it has locked no longer change.
void release_part(sql::connection& db, const batch_statements& sql, session_id session,
                  grants_view part, std::vector<bool>& freed, std::size_t from,
                  sql::deadline until) {
    const auto locked = lock_rows(db, sql, part, name_of, until);
    std::vector<granted_name> ours;
    for (std::size_t i = 0; i < part.size(); ++i) {
        const auto found = locked.find(std::string{part[i].name});
        freed[from + i] = found != locked.end() && found->second.session == session &&
                          found->second.grant_id == part[i].grant_id;
        if (freed[from + i]) ours.push_back(part[i]);
    }
    if (ours.empty()) return;
    const auto changed = write_releases(db, sql.release_locked, session, ours, until);
    if (std::cmp_equal(changed, ours.size())) return;
    const auto kept = grants_of(db, sql, session, grants_view{ours}, name_of, until);
    for (std::size_t i = 0; i < part.size(); ++i) {
        if (kept.contains(part[i].grant_id)) freed[from + i] = false;  // waited for
    }
}

/// Releases any number, skipping rows that another client has locked. One commit.
std::vector<bool> release_unlocked(sql::connection& db, const batch_statements& sql,
                                   session_id session, grants_view grants, sql::deadline until) {
    std::vector<bool> freed(grants.size(), false);
    const bool committed = with_locked_rows(db, until, [&] {
        sql::for_each_part(grants, [&](grants_view part, std::size_t from) {
            release_part(db, sql, session, part, freed, from, until);
        });
        return std::ranges::find(freed, true) != freed.end();
    });
    if (!committed) freed.assign(grants.size(), false);
    return freed;
}

/// The statements for several leases at once never wait for a row, where the server has such.
class mysql_batch_protocol final : public probing_batch_protocol {
public:
    mysql_batch_protocol(const sql::statement_set& statements, const lease_protocol& leases)
        : probing_batch_protocol{statements, leases}, sql_{statements} {}

    [[nodiscard]] bool reacquire(sql::connection& db, const grant_request& request,
                                 std::int64_t known, sql::deadline until) const override {
        if (!sql::facts_of(db, until).mariadb) return false;
        try {
            return reacquire_by(db, request, known, until, number_of(request.server));
        } catch (const error& failure) {
            if (!found_a_lock(failure)) throw;
            return false;
        }
    }

    [[nodiscard]] std::vector<lease_probe> probe_all(sql::connection& db, session_id session,
                                                     names_view names,
                                                     sql::deadline until) const override {
        return probe_rows(db, sql_, session, names, until).probes;
    }

    [[nodiscard]] std::vector<std::optional<std::int64_t>> acquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const override {
        std::vector<std::optional<std::int64_t>> tokens(requests.size());
        if (requests.empty()) return tokens;
        const bool mariadb = sql::facts_of(db, until).mariadb;
        std::vector<std::string_view> names;
        for (const auto& each : requests) names.push_back(each.name);
        const auto seen = probe_rows(db, sql_, requests.front().session, names, until);

        std::vector<taking> present, absent;
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const lease_probe& each = seen.probes[i];
            if (!each.session_live || !each.takeable(requests[i].barging)) continue;
            (each.present ? present : absent).push_back({&requests[i], each.token});
        }
        const bool at_once = mariadb && !present.empty() && present.size() <= sql::list_size;
        if (!at_once || !take_at_once(db, sql_, present, seen.floor, until)) {
            if (!present.empty()) take_unlocked(db, sql_, present, seen.floor, until);
        }
        if (mariadb) {
            sql::for_each_part(takings_view{absent}, [&](takings_view part, std::size_t) {
                insert_at_once(db, sql_, part, seen.floor, until);
            });
        }
        for (const auto* const list : {&present, &absent}) {
            for (const auto& each : *list) {
                const auto index = static_cast<std::size_t>(each.request - requests.data());
                if (each.granted) tokens[index] = seen.probes[index].next_token;
            }
        }
        return tokens;
    }

    [[nodiscard]] std::vector<bool> release_all(sql::connection& db, session_id session,
                                                grants_view grants,
                                                sql::deadline until) const override {
        if (grants.empty()) return {};
        if (grants.size() <= sql::list_size && sql::facts_of(db, until).mariadb) {
            if (auto freed = release_at_once(db, sql_, session, grants, until)) return *freed;
        }
        return release_unlocked(db, sql_, session, grants, until);
    }

private:
    const batch_statements sql_;
};

}  // namespace

std::unique_ptr<const batch_protocol> make_mysql_batches(const sql::statement_set& statements,
                                                         const lease_protocol& leases) {
    return std::make_unique<const mysql_batch_protocol>(statements, leases);
}

}  // namespace rowlock::protocol
