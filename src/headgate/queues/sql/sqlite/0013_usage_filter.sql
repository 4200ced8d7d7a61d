-- The filter of a consumer's claims, as it last reported it; NULL without one: so it can be told which index is missing.
ALTER TABLE headgate_usage ADD COLUMN filter TEXT;
