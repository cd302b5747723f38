#include "transaction/rows/statement_effect.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string_view>

using namespace rowlock;
using detail::effect_of;
using detail::statement_effect;

namespace {

void all_are(statement_effect wanted, sql::dialect speaks,
             std::initializer_list<std::string_view> texts) {
    for (const auto text : texts) {
        CAPTURE(text);
        CHECK(effect_of(speaks, text) == wanted);
    }
}

}  // namespace

TEST_CASE("statements that end a transaction are detected in any spelling") {
    for (const auto speaks :
         {sql::dialect::postgresql, sql::dialect::mysql, sql::dialect::sqlite}) {
        all_are(
            statement_effect::ends_transaction, speaks,
            {"commit", "  COMMIT;", "/* x */ Commit", "-- x\ncommit", "begin", "start transaction",
             "rollback", "rollback work", "Rollback;", "abort", "end", "prepare transaction 'x'"});
        all_are(statement_effect::several, speaks, {"select 1; commit", "select ';' ; commit"});
        all_are(
            statement_effect::plain, speaks,
            {"select 1", "(select 1)", "select 1;", "select ';'", "insert into commit values (1)",
             "with x as (select 1) select * from x", "update t set a = 'commit'", "savepoint a",
             "rollback to a", "rollback work to savepoint a", "ROLLBACK TRANSACTION TO a",
             "release savepoint a", "/* rowlock x */ delete from t"});
        all_are(statement_effect::leaves_traces, speaks,
                {"set x = 1", "create temporary table x (a int)", "select get_lock('a', 1)",
                 "select SET_CONFIG('a', 'b', false)", "select pg_advisory_lock(1)"});
        all_are(statement_effect::may_end, speaks, {"call x()", "execute x"});
    }
}

TEST_CASE("each database has statements that end a transaction in its own way") {
    all_are(statement_effect::ends_transaction, sql::dialect::mysql,
            {"create table t (a int)", "truncate t", "set autocommit = 1", "SET @@autocommit=1",
             "/*! commit */", "/*M! commit */", "lock tables t write", "alter table t add b int"});
    all_are(statement_effect::plain, sql::dialect::postgresql,
            {"set local lock_timeout = 1", "select \"set_config\" from t"});
    all_are(statement_effect::leaves_traces, sql::dialect::postgresql,
            {"create table t (a int)", "do $$ begin perform 1; end $$", "set lock_timeout = 1"});
    all_are(statement_effect::leaves_traces, sql::dialect::sqlite,
            {"pragma synchronous", "vacuum"});
    all_are(statement_effect::leaves_traces, sql::dialect::mysql,
            {"select @a := 1", "select 1 into @b", "drop temporary table t"});
}

TEST_CASE(
    "text is parsed as the database parses it, so that no string or comment hides a statement") {
    all_are(statement_effect::several, sql::dialect::postgresql,
            {"select $$a$$; commit and chain", "select E'\\''; commit and chain; --'",
             "select E'a'\n'\\''; commit and chain; --'", "select 1 -- a\r; commit and chain",
             "select 1 /* /* */ ' */; commit and chain; select ' '",
             "select $a$ $$ $a$; commit and chain; select $$ $$"});
    all_are(statement_effect::plain, sql::dialect::postgresql,
            {"select $$;$$", "select $a$; $$ ;$a$", "select E'a\\';b'", "select $1; --",
             "select 'a'';'", "select 1 /* ; /* ; */ ; */", "select '\\'"});
    all_are(statement_effect::leaves_traces, sql::dialect::postgresql,
            {"select 1 into\n  temp x", "select 1 into pg_temp.x", "set local search_path = x",
             "explain analyze create temp table x as select 1"});
    all_are(statement_effect::several, sql::dialect::mysql,
            {"select 5--1; commit", "select /*!1*/*2; commit", "select 1 --\x7f'\n; commit -- '"});
    all_are(statement_effect::leaves_traces, sql::dialect::mysql,
            {"select 1--1, get_lock('a', 1)", "set @a = (select a from transactions)",
             "set statement max_statement_time = 1 for select 1"});
    all_are(statement_effect::ends_transaction, sql::dialect::mysql,
            {"set session `autocommit` = 1", "set statement a = 1 for commit", "backup stage start",
             "set password = ''", "create temporary sequence s", "load index into cache t"});
    all_are(statement_effect::may_end, sql::dialect::mysql,
            {"execute immediate 'commit'", "load data infile 'x' into table t", "unheard of"});
    all_are(statement_effect::several, sql::dialect::sqlite,
            {"select 1 as [a']; commit; select 1 as [b']"});
}
