#include <rowlock/sql/classify.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using rowlock::errc;
using rowlock::sql::classify_mysql;
using rowlock::sql::classify_postgresql;

TEST_CASE("PostgreSQL's SQLSTATEs are classified by what a caller can do") {
    const std::vector<std::pair<std::string, errc>> expected{
        {"40001", errc::conflict},
        {"40002", errc::conflict},
        {"40003", errc::outcome_unknown},
        {"40P01", errc::deadlock},
        {"55P03", errc::timed_out},
        {"57014", errc::timed_out},
        {"23505", errc::unique_violation},
        {"23503", errc::database_error},
        {"42P01", errc::schema_outdated},
        {"42703", errc::schema_outdated},
        {"3F000", errc::schema_outdated},
        {"42P10", errc::schema_outdated},
        {"42601", errc::database_error},
        {"42501", errc::access_denied},
        {"28P01", errc::access_denied},
        {"28000", errc::access_denied},
        {"25006", errc::read_only},
        {"25P02", errc::database_error},
        {"25001", errc::database_error},
        {"53100", errc::out_of_resources},
        {"53200", errc::out_of_resources},
        {"53300", errc::out_of_resources},
        {"08006", errc::database_unreachable},
        {"08P01", errc::database_unreachable},
        {"3D000", errc::database_unreachable},
        {"57P01", errc::database_unreachable},
        {"57P02", errc::database_unreachable},
        {"57P03", errc::database_unreachable},
        {"0A000", errc::unsupported},
        {"22P02", errc::database_error},
        {"XX000", errc::database_error},
    };
    for (const auto& each : expected) {
        CAPTURE(each.first);
        CHECK(classify_postgresql(each.first) == each.second);
    }
}

TEST_CASE("a text that is not an SQLSTATE is a database error") {
    for (const std::string text : {"", "4", "40", "400011", "hello world"}) {
        CAPTURE(text);
        CHECK(classify_postgresql(text) == errc::database_error);
    }
}

TEST_CASE("MySQL's and MariaDB's error numbers are classified by what a caller can do") {
    const std::vector<std::pair<int, errc>> expected{
        {1213, errc::deadlock},
        {1205, errc::timed_out},
        {1317, errc::timed_out},
        {1467, errc::timed_out},
        {1969, errc::timed_out},
        {3024, errc::timed_out},
        {3572, errc::timed_out},
        {1020, errc::conflict},
        {1062, errc::unique_violation},
        {1586, errc::unique_violation},
        {1054, errc::schema_outdated},
        {1146, errc::schema_outdated},
        {1049, errc::database_unreachable},
        {1044, errc::access_denied},
        {1045, errc::access_denied},
        {1142, errc::access_denied},
        {1143, errc::access_denied},
        {1227, errc::access_denied},
        {1698, errc::access_denied},
        {1290, errc::read_only},
        {3101, errc::conflict},
        {3100, errc::outcome_unknown},
        {3781, errc::timed_out},
        {3032, errc::database_unreachable},
        {6400, errc::database_unreachable},
        {3098, errc::unsupported},
        {1792, errc::read_only},
        {1836, errc::read_only},
        {1021, errc::out_of_resources},
        {1040, errc::out_of_resources},
        {1041, errc::out_of_resources},
        {1114, errc::out_of_resources},
        {1203, errc::out_of_resources},
        {1226, errc::out_of_resources},
        {1461, errc::out_of_resources},
        {1053, errc::database_unreachable},
        {1927, errc::database_unreachable},
        {1047, errc::database_unreachable},
        {2002, errc::database_unreachable},
        {2003, errc::database_unreachable},
        {2005, errc::database_unreachable},
        {2006, errc::database_unreachable},
        {2013, errc::database_unreachable},
        {1235, errc::unsupported},
        {1064, errc::database_error},
        {0, errc::database_error},
        {-1, errc::database_error},
    };
    for (const auto& each : expected) {
        CAPTURE(each.first);
        CHECK(classify_mysql(each.first) == each.second);
    }
    CHECK(classify_mysql(1064, "Unknown trigger has an error in its body: 'You have an error in") ==
          errc::timed_out);
    CHECK(classify_mysql(1064, "You have an error in your SQL syntax") == errc::database_error);
}
