-- Which message ends its consumers.
--
-- doubt: 1, leased together with others by one consumer: if it ends, nobody knows which of them it was, and the attempt is
-- counted for none. 2: a consumer ended like that; from now on it is given to a consumer alone, and counted. Of what is
-- neither leased nor was, 1 means nothing.
ALTER TABLE headgate_delivery ADD COLUMN doubt INTEGER NOT NULL DEFAULT 0;
