// A row of your own table, locked for one transaction, and the transaction repeated if necessary.
//
//   13_row_session [URL]

#include "example.hpp"
#include <rowlock/rowlock.hpp>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        const auto until = std::chrono::steady_clock::now() + 1min;
        const auto db = database.connect(until);
        db->query("create table example_seat (id integer primary key, guest varchar(20))", until);
        db->query("insert into example_seat values (1, null), (2, null)", until);

        const rowlock::sql::statement book{"update example_seat set guest = $2 where id = $1"};
        const auto reserve = [&](int seat, std::string_view guest) {
            // A deadlock or a lost connection repeats all of it. A wait ends after 5 s.
            return rowlock::retry(database, {}, [&](rowlock::row_session& session) {
                const auto row =
                    session.lock("example_seat", {"id"}, {seat}, {.columns = {"guest"}});
                if (!row || !row->is_null("guest")) return false;  // no such seat, or taken
                session.connection().execute(
                    book, std::initializer_list<rowlock::sql::value>{seat, guest}, until);
                return true;
            });
        };
        for (const auto& [seat, guest] :
             {std::pair{1, "Anna"}, {1, "Ben"}, {2, "Ben"}, {3, "Ben"}}) {
            std::cout << guest << (reserve(seat, guest).value ? " has seat " : " cannot have seat ")
                      << seat << '\n';
        }
        db->query("drop table example_seat", until);
    });
}
