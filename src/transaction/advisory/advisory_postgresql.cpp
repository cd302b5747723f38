#include "sql/run_statement.hpp"
#include "sql/statements.hpp"
#include "transaction/advisory/advisory_dialects.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <random>

namespace rowlock::detail {
namespace {

using std::chrono::milliseconds;

sql::statement postgresql_statement(std::string_view name) {
    return sql::load_statement(sql::dialect::postgresql, name);
}

int as_number(bool yes) {
    return yes ? 1 : 0;
}

bool is_shared(advisory_mode mode) {
    return mode == advisory_mode::shared;
}

/// A random mark, different for each connection of any process.
std::string fresh_mark() {
    std::random_device random;
    std::string mark;
    for (int i = 0; i < 4; ++i) mark += std::to_string(random()) + (i < 3 ? "." : "");
    return mark;
}

/// A waiting statement says nothing of its end, so that each wait asks afterwards what is held.
class postgresql_advisory final : public advisory_protocol {
public:
    [[nodiscard]] bool depends_on_schema(const advisory_key& /*key*/) const noexcept override {
        return false;
    }
    [[nodiscard]] server_key key_of(const advisory_key& key, std::string_view domain,
                                    std::string_view /*schema*/) const override {
        return postgresql_key(key, domain);
    }
    void require_mode(advisory_mode /*mode*/) const override {}

    [[nodiscard]] server_session set_up(sql::connection& db, milliseconds statement,
                                        milliseconds keepalive_timeout,
                                        sql::deadline until) const override {
        const std::string mark = fresh_mark();
        const auto row = run(db, setup_, until, std::to_string(statement.count()),
                             std::to_string(keepalive_timeout.count()), mark);
        if (row.integer(0, 1) == 0) {
            throw error{errc::unsupported,
                        "the server process of a new connection holds advisory locks already: a "
                        "transaction pooler shares it, or an earlier user of the connection left "
                        "them; connect to PostgreSQL directly"};
        }
        return {.process = row.integer(0, 0), .mark = mark};
    }

    [[nodiscard]] bool try_lock(sql::connection& db, const server_session& session,
                                const server_key& key, advisory_mode mode,
                                sql::deadline until) const override {
        return read_grant(db, session, run_on(db, try_, session, key, mode, until));
    }

    [[nodiscard]] bool wait(sql::connection& db, const server_session& session,
                            const server_key& key, advisory_mode mode, milliseconds slice,
                            sql::deadline until) const override {
        db.query(wait_text(slice, call_of("pg_advisory_lock", key, mode), session.mark), until);
        const wanted one{key, mode};
        return held(db, session, {&one, 1}, until).front();
    }

    [[nodiscard]] bool unlock(sql::connection& db, const server_session& session,
                              const server_key& key, advisory_mode mode,
                              sql::deadline until) const override {
        return read_unlock(db, session, run_on(db, unlock_, session, key, mode, until));
    }

    void unlock_all(sql::connection& db, sql::deadline until) const override {
        run(db, unlock_all_, until);
    }

    [[nodiscard]] std::vector<bool> held(sql::connection& db, const server_session& session,
                                         std::span<const wanted> locks,
                                         sql::deadline until) const override {
        const auto rows = run(db, held_, until);
        require_session(db, session, rows.integer(0, 0));
        require_writable(rows.integer(0, 1) == 0);
        const auto is_held = [&rows](const wanted& lock) {
            for (std::size_t row = 0; row < rows.rows(); ++row) {
                if (rows.is_null(row, 2)) continue;
                if (rows.integer(row, 2) == lock.key.bits &&
                    rows.integer(row, 3) == as_number(lock.key.pair) &&
                    rows.integer(row, 4) == as_number(is_shared(lock.mode))) {
                    return true;
                }
            }
            return false;
        };
        std::vector<bool> answers;
        answers.reserve(locks.size());
        for (const auto& lock : locks) answers.push_back(is_held(lock));
        return answers;
    }

    [[nodiscard]] holder_state holder_status(sql::connection& db, const server_session& session,
                                             const server_key& key,
                                             sql::deadline until) const override {
        const auto row = run(db, holder_status_, until, key.bits, as_number(key.pair));
        require_session(db, session, row.integer(0, 2));
        if (row.integer(0, 0) == 0) return holder_state::not_ours;
        return row.integer(0, 1) == 0 ? holder_state::alone : holder_state::contended;
    }

private:
    static sql::result run_on(sql::connection& db, const sql::statement& what,
                              const server_session& session, const server_key& key,
                              advisory_mode mode, sql::deadline until) {
        return run(db, what, until, key.bits, as_number(key.pair), as_number(is_shared(mode)),
                   session.mark);
    }

    const sql::statement setup_ = postgresql_statement("advisory_setup");
    const sql::statement try_ = postgresql_statement("advisory_try");
    const sql::statement unlock_ = postgresql_statement("advisory_unlock");
    const sql::statement unlock_all_ = postgresql_statement("advisory_unlock_all");
    const sql::statement held_ = postgresql_statement("advisory_held");
    const sql::statement holder_status_ = postgresql_statement("advisory_holder_status");
};

}  // namespace

server_key postgresql_key(const advisory_key& key, std::string_view domain) {
    switch (key.type()) {
        case advisory_key::kind::name:
            return {.bits = advisory_number(key.str(), domain)};
        case advisory_key::kind::number:
            return {.bits = key.bits()};
        case advisory_key::kind::pair:
            return {.bits = key.bits(), .pair = true};
        case advisory_key::kind::verbatim:
            throw error{errc::unsupported,
                        "verbatim text is not a key of pg_advisory_lock: use a name, "
                        "advisory_key::number() or advisory_key::pair()"};
    }
    throw error{errc::invalid_options, "an advisory key of an unknown kind"};
}

std::string call_of(std::string_view function, const server_key& key, advisory_mode mode) {
    std::string call{function};
    if (is_shared(mode)) call += "_shared";
    if (!key.pair) {
        // The least bigint cannot be written as a negated literal.
        return "pg_catalog." + call + "(cast(''" + std::to_string(key.bits) + "'' as bigint))";
    }
    const auto half = [](std::int64_t bits) {
        const auto number = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
        return "cast(''" + std::to_string(number) + "'' as int)";
    };
    return "pg_catalog." + call + "(" + half(key.bits >> 32) + ", " + half(key.bits) + ")";
}

// PostgreSQL's DO takes no parameters, so its text has the values: two numbers, and the mark, which
// has digits and dots only.
std::string wait_text(milliseconds slice, const std::string& call, const std::string& mark) {
    static const sql::statement_set statements{sql::dialect::postgresql};
    const auto refusal =
        mark.empty() ? std::string{"false"}
                     : "coalesce(pg_catalog.current_setting(''rowlock.session'', true), '''') "
                       "operator(pg_catalog.<>) ''" +
                           mark + "''";
    return statements.text_of("advisory_wait",
                              {{"slice", std::to_string(std::max<std::int64_t>(1, slice.count()))},
                               {"call", call},
                               {"refusal", refusal}});
}

std::unique_ptr<const advisory_protocol> make_postgresql_advisory() {
    return std::make_unique<postgresql_advisory>();
}

}  // namespace rowlock::detail
