-- The rows of "languages". Run it before declare.sql: while "languages" is an ordinary table its rows live on the home shard,
-- and declaring it a reference table copies them to every shard.

INSERT INTO languages (code, name) VALUES
    ('ara', 'Arabic'), ('chi', 'Chinese'), ('eng', 'English'), ('fre', 'French'), ('ger', 'German'), ('hin', 'Hindi'),
    ('ita', 'Italian'), ('jpn', 'Japanese'), ('por', 'Portuguese'), ('rus', 'Russian'), ('spa', 'Spanish')
ON CONFLICT (code) DO NOTHING;
