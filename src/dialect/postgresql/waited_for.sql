-- Which of these names have a live waiter. Reads only.
-- $1 … $16 names; may repeat
select distinct n.name
  from pg_catalog.unnest(array[$1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text,
                   $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
                   $16::text]) as n(name)
 where {waited_n}
