#include "support/failure.hpp"
#include <rowlock/error.hpp>
#include <rowlock/lease_offer.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace rowlock;
using support::kind_of;

TEST_CASE("an offer survives as text, whatever its name contains") {
    for (const char* name : {"job", "a b  c ", "nächtlich", "rowlock-offer-1 1 2 3 x"}) {
        const lease_offer offer{.name = name,
                                .session = session_id{9'000'000'000'000'000'001},
                                .grant_id = grant_id{2},
                                .token = fencing_token{3}};
        CHECK(lease_offer::parse(offer.text()) == offer);
    }
    CHECK(lease_offer::parse("rowlock-offer-1 1 2 3 job").grant_id == grant_id{2});
}

TEST_CASE("a text that is no offer is refused") {
    for (const char* text :
         {"", "job", "rowlock-offer-1", "rowlock-offer-1 1 2 3", "rowlock-offer-2 1 2 3 job",
          "rowlock-offer-1 0 2 3 job", "rowlock-offer-1 1 -2 3 job", "rowlock-offer-1 1 2x 3 job",
          "rowlock-offer-1 1  2 3 job", "rowlock-offer-1 99999999999999999999 2 3 job"}) {
        CAPTURE(std::string{text});
        CHECK(kind_of([&] { static_cast<void>(lease_offer::parse(text)); }) ==
              errc::invalid_options);
    }
    CHECK(kind_of([] { static_cast<void>(lease_offer::parse("rowlock-offer-1 1 2 3 ")); }) ==
          errc::invalid_name);
}
