// PostgreSQL: another role may create operators, functions and types in a schema of the search
// path. None of rowlock's statements may resolve to one.

#include "sql/statements.hpp"
#include "support/failure.hpp"
#include "support/protocols.hpp"
#include "support/servers.hpp"
#include "support/waits.hpp"
#include "transaction/optimistic/version_sql.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/driver/soci.hpp>
#include <rowlock/fenced_table.hpp>
#include <rowlock/history.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::soon;

namespace {

/// Statements that run on the caller's handles, or before the path of rowlock's connection is set.
const std::set<std::string, std::less<>> on_any_path{
    "fence",
    "release_on_commit",
    "insert_resource",
    "row_session_setup",
    "row_table",
    "column_types",
    "advisory_setup",
    "advisory_try_in",
    "session_setup",
    "session_setup_only",
    "server_identity",
    "server_timeline",
    "state_settings",
    "version_create",
    "version_erase",
    "version_list",
    "version_read",
    "version_update",
    "version_restore",
    "history",
    "history_of",
    "before_listen",
    "history_session_end",
    "blocking_transactions",
    "prepared_transactions",
};

/// A text that contains parameters, since DO takes none. `wait_in` below runs it.
constexpr std::string_view not_planned = "advisory_wait";

/// Every PostgreSQL statement of the source tree, by name.
std::vector<std::pair<std::string, std::string>> all_statements(const std::string& prefix) {
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& each : sql::written_statements(sql::dialect::postgresql)) {
        if (each.name == not_planned) continue;
        found.emplace_back(each.name, sql::load_statement(sql::dialect::postgresql, each.name,
                                                          {.tables = {.prefix = prefix}})
                                          .text());
    }
    return found;
}

bool part_of_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Collects words before a parenthesis, and runs of the characters of operators.
void collect(std::string_view text, std::set<std::string>& functions,
             std::set<std::string>& operators) {
    constexpr std::string_view signs = "+-*/<>=~!@#%^&|`?";
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at;
        if (text[at] == '\'') {
            at = std::min(text.find('\'', at + 1), text.size() - 1) + 1;
        } else if (text.substr(at).starts_with("/*")) {
            at = text.find("*/", at) + 2;
        } else if (part_of_name(text[at])) {
            while (end < text.size() && part_of_name(text[end])) ++end;
            if (end < text.size() && text[end] == '(') functions.emplace(text.substr(at, end - at));
            at = end;
        } else if (signs.find(text[at]) != std::string_view::npos) {
            while (end < text.size() && signs.find(text[end]) != std::string_view::npos) ++end;
            operators.emplace(text.substr(at, end - at));
            at = end;
        } else {
            ++at;
        }
    }
}

std::size_t parameters_of(std::string_view text) {
    std::size_t most = 0;
    for (auto at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
        most = std::max<std::size_t>(most, std::strtoul(text.data() + at + 1, nullptr, 10));
    }
    return most;
}

std::string as_array(const std::set<std::string>& all) {
    std::string text = "array[";
    for (const auto& each : all) text.append(text.back() == '[' ? "'" : ", '").append(each) += "'";
    return text + "]";
}

/// SQL that creates an operator of every name for each pair of types, and functions of these names
/// with other parameter types. The role that the tests use may not call them, and PostgreSQL checks
/// that right when a plan starts, not only at the call.
std::string hostile_schema(const std::set<std::string>& functions,
                           const std::set<std::string>& operators) {
    return R"(do $body$
declare
    types constant text[] := array['int2', 'int4', 'int8', 'numeric', 'float8', 'text', 'varchar',
        '"char"', 'name', 'oid', 'tid', 'bool', 'interval', 'timestamptz', 'timestamp', 'json',
        'regclass', 'pg_lsn', 'int8[]', 'text[]'];
    pseudo constant text[] := array(select pg_catalog.format_type(oid, null)
                                      from pg_catalog.pg_type where typtype = 'p');
    body constant text := $f$language plpgsql as $g$begin raise exception 'planted'; end$g$$f$;
    a text; b text; op text; result text; f record; place int; given text[]; returned text;
begin
    set local search_path = pg_catalog;
    foreach a in array types loop
        foreach b in array types loop
            foreach op in array )" +
           as_array(operators) + R"( loop
                result := case when op ~ '[=<>~]' and op not in ('<<', '>>', '->>') then 'bool'
                               when op in ('||', '->>') then 'text'
                               when 'timestamptz' in (a, b) then 'timestamptz'
                               when 'interval' in (a, b) then 'interval' else a end;
                if to_regprocedure(format('hostile.%I(%s, %s)', 'planted_' || result, a, b)) is null then
                    execute format('create function hostile.%I(%s, %s) returns %s %s',
                                   'planted_' || result, a, b, result, body);
                end if;
                execute format('create operator hostile.%s (leftarg = %s, rightarg = %s, '
                               'function = hostile.%I)', op, a, b, 'planted_' || result);
            end loop;
        end loop;
    end loop;
    for f in select p.proname, p.proretset, format_type(p.prorettype, null) as returns,
                    array(select format_type(t, null)
                            from unnest(p.proargtypes) with ordinality u (t, n) order by n) as given
               from pg_proc p
              where p.pronamespace = 'pg_catalog'::regnamespace and p.provariadic = 0
                and p.proname = any ()" +
           as_array(functions) + R"()
    loop
        returned := case when f.returns = any (pseudo) then 'text'
                         else f.returns end;
        for place in 0 .. coalesce(array_length(f.given, 1), 0) loop
            foreach a in array types loop
                given := f.given;
                if place > 0 then given[place] := a; end if;
                continue when given && pseudo;
                begin
                    execute format('create function hostile.%I(%s) returns %s%s %s', f.proname,
                                   array_to_string(given, ', '),
                                   case when f.proretset then 'setof ' else '' end, returned, body);
                exception when duplicate_function then null;
                end;
                exit when place = 0;
            end loop;
        end loop;
    end loop;
    execute format('create function hostile.planted_check(bool) returns bool %s', body);
    foreach a in array array['text', 'varchar', 'int8', 'float8', 'oid', 'tid', 'name', 'point',
                             'timestamptz', 'regclass'] loop
        execute format('create domain hostile.%I as pg_catalog.%I '
                       'check (hostile.planted_check(true))', a, a);
    end loop;
end $body$)";
}

/// A database with a schema that a stranger has filled, and a role that may call nothing in it.
class hostile_database {
public:
    hostile_database() {
        const auto server = support::url_of(support::server::postgresql);
        if (!server) return;
        const auto slash = server->rfind('/');
        admin_ = postgresql::open(*server).connect(soon());
        run("create database " + name_);
        run("create role " + name_ + " login password 'victim'");
        owner_ = postgresql::open(server->substr(0, slash + 1) + name_).connect(soon());
        plant();
        const auto host = server->substr(server->find('@'), slash + 1 - server->find('@'));
        url_ = "postgresql://" + name_ + ":victim" + host + name_;
    }
    hostile_database(const hostile_database&) = delete;
    hostile_database& operator=(const hostile_database&) = delete;
    ~hostile_database() {
        if (!admin_) return;
        owner_.reset();
        try {
            run("drop database " + name_ + " with (force)");
            run("drop role " + name_);
        } catch (const std::exception& failure) {
            MESSAGE("a database of a test was left behind: ", failure.what());
        }
    }

    [[nodiscard]] bool there() const { return owner_ != nullptr; }
    /// The URL of the role that may not call the planted functions.
    [[nodiscard]] const std::string& url() const { return url_; }
    [[nodiscard]] std::unique_ptr<sql::connection> connect(const std::string& path) const {
        auto made = postgresql::open(url_).connect(soon());
        made->query("set search_path = " + path, soon());
        made->query("set plan_cache_mode = force_generic_plan", soon());
        return made;
    }
    [[nodiscard]] sql::connection& owner() { return *owner_; }

private:
    void run(const std::string& text) { admin_->query(text, soon()); }

    void plant() {
        std::set<std::string> functions{// from texts that are composed at run time
                                        "count",
                                        "to_regclass",
                                        "isfinite",
                                        "clock_timestamp",
                                        "now",
                                        "format",
                                        "set_config",
                                        "current_setting",
                                        "timezone",
                                        "date_part",
                                        "extract",
                                        "pg_try_advisory_xact_lock",
                                        "pg_advisory_xact_lock",
                                        "pg_listening_channels",
                                        "quote_ident",
                                        "current_schema"};
        std::set<std::string> operators{
            "=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "||", "~"};
        for (const auto& [name, text] : all_statements("rowlock_")) {
            collect(text, functions, operators);
        }
        owner_->query("create schema hostile", soon());
        owner_->query("create schema app", soon());
        try {
            owner_->query(hostile_schema(functions, operators),
                          std::chrono::steady_clock::now() + 60s);
        } catch (const error& failure) {
            FAIL("nothing was planted: ", failure.server_message());
        }
        owner_->query("revoke execute on all functions in schema hostile from public", soon());
        owner_->query("grant usage on schema hostile to public", soon());
        owner_->query("grant all on schema app to public", soon());
        // Every new connection of the victim searches the stranger's schema first.
        owner_->query("alter role " + name_ + " set search_path = hostile, pg_catalog, app",
                      soon());
    }

    std::string name_ = "rowlock_path_" + std::to_string(::getpid());
    std::string url_;
    std::unique_ptr<sql::connection> admin_;
    std::unique_ptr<sql::connection> owner_;
};

/// The database that all cases share, since it takes seconds to fill.
hostile_database& planted() {
    static hostile_database only;
    return only;
}

/// PostgreSQL's error for a statement's plan, or an empty string if it uses no planted function.
std::string objection(sql::connection& db, const std::string& text) {
    std::string given;
    for (std::size_t i = 0; i < parameters_of(text); ++i) given += i == 0 ? "(null" : ", null";
    if (!given.empty()) given += ")";
    try {
        db.query("prepare planned as " + text, soon());
    } catch (const error& failure) {
        return failure.server_message();
    }
    std::string said;
    try {
        db.query("explain execute planned" + given, soon());
    } catch (const error& failure) {
        said = failure.server_message();
    }
    db.query("deallocate planned", soon());
    return said;
}

/// Tables of the library in schema `app`, made by the victim itself.
void migrate_app() {
    static bool done = false;
    if (done) return;
    const auto source = postgresql::open(planted().url());
    migrate(source.with_tables({.schema = "app"}));
    record_history(source, true);
    done = true;
}

}  // namespace

TEST_CASE("control: planted operators and functions are chosen where a statement allows it") {
    if (!planted().there()) return;
    const auto ours = planted().connect("pg_catalog, hostile");
    CHECK(objection(*ours, "select $1::bigint * interval '1 s'").find("planted_interval") !=
          std::string::npos);
    CHECK(objection(*ours, "select 'a' || $1::bigint::varchar").find("planted_text") !=
          std::string::npos);
    CHECK(objection(*ours, "select unnest($1::text[])").find("unnest") != std::string::npos);
    CHECK(objection(*ours, "select $1::bigint = 1 and clock_timestamp() is null").empty());
    const auto any = planted().connect("hostile, pg_catalog");
    CHECK(objection(*any, "select $1::bigint = 1").find("planted_bool") != std::string::npos);
    CHECK(objection(*any, "select clock_timestamp()").find("clock_timestamp") != std::string::npos);
    CHECK(objection(*any, "select ($1::bigint)::text").find("planted_check") != std::string::npos);
    CHECK(objection(*any, "select $1::bigint operator(pg_catalog.=) 1").empty());
}

TEST_CASE("no statement uses an operator, a function or a type of another schema") {
    if (!planted().there()) return;
    migrate_app();
    // The stranger's schema may even be the one with rowlock's tables.
    const auto ours = planted().connect("pg_catalog, hostile, app");
    const auto any = planted().connect("hostile, pg_catalog, app");
    std::size_t planned = 0;
    std::size_t on_any = 0;
    for (const auto& each : all_statements("rowlock_")) {
        const std::string& name = each.first;
        const std::string& text = each.second;
        CAPTURE(name);
        CHECK(objection(*ours, text) == "");
        ++planned;
        if (!on_any_path.contains(name)) continue;
        CHECK(objection(*any, text) == "");
        ++on_any;
    }
    CHECK(on_any == on_any_path.size());
    CHECK(planned > 80);
}

TEST_CASE("no statement on the caller's tables uses an operator of another schema") {
    using optimistic::mark;
    using optimistic::storage;
    if (!planted().there()) return;
    planted().owner().query(
        "create table if not exists app.stock (sku varchar primary key, n int, version smallint, "
        "at timestamptz, plain timestamp, gone timestamptz, gone_us bigint)",
        soon());
    planted().owner().query("grant all on app.stock to public", soon());
    const auto any = planted().connect("hostile, pg_catalog, app");
    optimistic::table_shape shape{.speaks = sql::dialect::postgresql,
                                  .table = "\"stock\"",
                                  .key = {"\"sku\""},
                                  .version = "\"version\""};
    const std::vector<assignment> values{increment("n", 1)};
    const auto check = [&] {
        CHECK(objection(*any, read_text(shape, {})) == "");
        CHECK(objection(*any, insert_text(shape, values)) == "");
        CHECK(objection(*any, erase_text(shape)) == "");
        CHECK(objection(*any, update_text(shape, values, mark::keep)) == "");
        if (shape.deleted_at.empty()) return;
        CHECK(objection(*any, update_text(shape, values, mark::set)) == "");
        CHECK(objection(*any, update_text(shape, values, mark::clear)) == "");
    };
    check();
    shape.deleted_at = "\"gone_us\"";
    shape.deleted_stored = storage::integer;
    check();
    shape.deleted_at = "\"gone\"";
    shape.deleted_stored = storage::zoned_time;
    shape.version_is_time = true;
    shape.version = "\"at\"";
    shape.version_stored = storage::zoned_time;
    check();
    shape.version = "\"plain\"";
    shape.version_stored = storage::plain_time;
    check();
}

TEST_CASE("a client works beside planted functions, on its own connections and on the caller's") {
    if (!planted().there()) return;
    migrate_app();
    const auto source = postgresql::open(planted().url());
    client locks{source};
    client other{source};
    auto lease = locks.acquire("a");
    CHECK(other.inspect("a")->holder);
    CHECK_FALSE(other.try_acquire("a"));
    std::optional<rowlock::lease> next;
    std::jthread waiter{[&] { next = other.try_acquire_for("a", 20s); }};
    CHECK(support::eventually([&] { return locks.inspect("a")->waiting == 1; }));

    // The caller's handle keeps the search path with the stranger's schema.
    const auto mine = source.connect(soon());
    mine->query("begin", soon());
    fence(*mine, lease);
    CHECK(try_transaction_lock(*mine, "b"));
    CHECK(transaction_lock(*mine, advisory_key{"c"}, 20s));
    release_on_commit(*mine, lease);
    mine->query("commit", soon());
    waiter.join();
    CHECK(next.has_value());

    advisory_client advisory{source};
    CHECK(advisory.try_lock("d"));
    CHECK_FALSE(read_history(source).empty());
    CHECK_NOTHROW(reap(source));
}

TEST_CASE("rows are locked and written beside planted functions") {
    if (!planted().there()) return;
    migrate_app();
    auto& owner = planted().owner();
    owner.query("create table app.account (id varchar primary key, balance int)", soon());
    owner.query("insert into app.account values ('x', 1)", soon());
    for (const auto& text :
         fence_token_sql(sql::dialect::postgresql, "app.account", {.trigger = true})) {
        owner.query(text, soon());
    }
    owner.query("grant all on app.account to public", soon());
    const auto source = postgresql::open(planted().url());
    const auto mine = source.connect(soon());

    const fenced_table accounts{"account", {"id"}};
    const auto until = soon();
    CHECK(accounts.update(*mine, {"x"}, fencing_token{5}, {{"balance", 7}}, until) ==
          fenced_write::done);
    CHECK(accounts.update(*mine, {"x"}, fencing_token{4}, {{"balance", 8}}, until) ==
          fenced_write::refused);
    CHECK(accounts.put(*mine, {"y"}, fencing_token{4}, {{"balance", 8}}, until) ==
          fenced_write::done);

    mine->query("begin", soon());
    CHECK(lock_row(*mine, "account", {"id"}, {"x"}, {.columns = {"balance"}}));
    CHECK_FALSE(lock_row(*mine, "account", {"id"}, {"z"}, {}));
    mine->query("rollback", soon());

    row_session rows{source};
    CHECK(rows.lock("account", {"id"}, {"x"}));
    rows.lock_resource("r");
    rows.commit();

    const versions counted;
    const auto first = counted.create(*mine, "v");
    REQUIRE(first);
    CHECK_NOTHROW(counted.update(*mine, "v", *first).or_throw());
}

TEST_CASE("a key of an extension's type is compared by that type's operator") {
    if (!planted().there()) return;
    auto& owner = planted().owner();
    owner.query("create schema more", soon());
    owner.query("create extension citext schema more", soon());
    owner.query("create domain more.sku as more.citext", soon());
    owner.query(
        "create table app.label (id more.sku primary key, n int, version bigint default 1, "
        "fence_token bigint default 0)",
        soon());
    owner.query("insert into app.label (id, n) values ('Apple', 1)", soon());
    owner.query("grant usage on schema more to public", soon());
    owner.query("grant all on app.label to public", soon());
    const auto mine = postgresql::open(planted().url()).connect(soon());
    // As text the key would be a different one.
    CHECK(mine->query("select from app.label where id operator(pg_catalog.=) 'aPPLE'", soon())
              .empty());
    mine->query("begin", soon());
    CHECK(lock_row(*mine, "app.label", {"id"}, {"aPPLE"}));
    const versioned_table labels{{.table = "app.label", .key = {"id"}, .version = "version"}};
    CHECK(labels.read(*mine, {"aPPLE"}, {"n"}));
    const fenced_table fenced{"app.label", {"id"}};
    CHECK(fenced.update(*mine, {"aPPLE"}, fencing_token{5}, {{"n", 7}}, soon()) ==
          fenced_write::done);
    mine->query("rollback", soon());
}

TEST_CASE("a client's connection searches only pg_catalog and the schema of its tables") {
    if (!planted().there()) return;
    migrate_app();
    for (const bool by_soci : {false, true}) {
        CAPTURE(by_soci);
        const auto source = by_soci ? rowlock::soci::open("postgresql", planted().url())
                                    : rowlock::postgresql::open(planted().url());
        const support::protocols protocols{sql::statement_set{sql::dialect::postgresql}};
        const auto db = source.connect(soon());
        CHECK(db->query("show search_path", soon()).text(0, 0) == "hostile, pg_catalog, app");
        protocols.leases().sessions().set_up(*db, 5s, soon());
        CHECK(db->query("show search_path", soon()).text(0, 0) == "pg_catalog, app, pg_temp");
    }
}

TEST_CASE("a fence reads the tables of its client, not others that the caller's path finds first") {
    if (!planted().there()) return;
    migrate_app();
    const auto source = postgresql::open(planted().url());
    client locks{source};
    auto lease = locks.acquire("fenced");
    const auto mine = source.connect(soon());
    // Another schema with tables of the same names, in which the lease is free.
    planted().owner().query("create schema decoy", soon());
    planted().owner().query("grant all on schema decoy to public", soon());
    mine->query("set search_path = decoy", soon());
    migrate(postgresql::open(planted().url() + "?options=-csearch_path%3Ddecoy"));
    CHECK(mine->query("select count(*) from rowlock_lock", soon()).integer(0, 0) == 0);
    mine->query("begin", soon());
    CHECK_NOTHROW(fence(*mine, lease));
    mine->query("commit", soon());
}
