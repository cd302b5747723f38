#include "lock/protocol/hold/tickets.hpp"

#include "sql/array_text.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"

#include <optional>

namespace rowlock::protocol {

std::vector<grant_id> first_column(const sql::result& rows) {
    std::vector<grant_id> numbers;
    numbers.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row)
        numbers.push_back(rows.integer<grant_id>(row, 0));
    return numbers;
}

std::string array_of(std::span<const grant_id> numbers) {
    sql::array_text array;
    for (const auto number : numbers) array.add(number);
    return array.close();
}

std::vector<grant_id> delete_tickets(sql::connection& db, const sql::statement& delete_one,
                                     const sql::result& tickets, sql::deadline until) {
    // One commit for all; in ticket order, so two clients cannot wait in a cycle.
    std::optional<sql::transaction_scope> transaction;
    if (tickets.rows() > 1) transaction.emplace(db, until);
    std::vector<grant_id> gone;
    for (std::size_t row = 0; row < tickets.rows(); ++row) {
        const auto deleted = sql::run(db, delete_one, until, tickets.integer<ticket_no>(row, 1));
        if (deleted.affected() > 0) gone.push_back(tickets.integer<grant_id>(row, 0));
    }
    if (transaction) transaction->commit(until);
    return gone;
}

}  // namespace rowlock::protocol
