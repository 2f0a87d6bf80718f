"""BFCL: files, tweets, messages, tickets, trading, travel, a car and a calculator."""
